"""Figures beside thresholds: was it this policy, were these tokens drawn, are the claimed logprobs its own.

The figures are the verifier's (`validator.prefill`); what is decided here is a function of them and the pool's rules.
Activations come before draws: text of another model fails both, and the first names the cause.
"""

import math
from collections.abc import Callable, Sequence

from farflung.wire.proof import RolloutFigures, Thresholds
from farflung.wire.verdict import RejectReason

DISTANCE, MEAN_MARGIN = "proof/activation_submission", "proof/mean_margin"
"""In `Verdict.measured`."""
AUDITED = "audit/rollout"
"""Likewise: position of the rollout that was sampled again."""

Check = Callable[[Sequence[RolloutFigures], Thresholds], str | None]


def submission_distance(figures: Sequence[RolloutFigures]) -> float:
    """Root mean square over all chunks of a submission."""
    squares = [distance * distance for rollout in figures for distance in rollout.activation_chunks]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


def mean_margin(figures: Sequence[RolloutFigures]) -> float:
    """Per token that the model drew, over a submission."""
    num_tokens = sum(rollout.num_tokens for rollout in figures)
    return sum(rollout.sum_margin for rollout in figures) / num_tokens if num_tokens else 0.0


def activations(figures: Sequence[RolloutFigures], limits: Thresholds) -> str | None:
    worst = max(figures, key=lambda rollout: max(rollout.activation_chunks, default=0.0))
    largest = max(worst.activation_chunks, default=0.0)
    if largest > limits.activation_chunk:
        chunk = worst.activation_chunks.index(largest)
        where = f"rollout ({worst.group}, {worst.sample}), chunk {chunk}"
        return f"{where}: states at a distance of {largest:.4f}, at most {limits.activation_chunk:g} allowed"
    distance = submission_distance(figures)
    if distance > limits.activation_submission:
        return f"states at a distance of {distance:.4f} over all, at most {limits.activation_submission:g} allowed"
    return None


def draws(figures: Sequence[RolloutFigures], limits: Thresholds) -> str | None:
    for rollout in figures:
        where = f"rollout ({rollout.group}, {rollout.sample})"
        if rollout.max_margin > limits.max_margin:
            return f"{where}: a token {rollout.max_margin:.3f} below the draw, at most {limits.max_margin:g} allowed"
        if rollout.surprise < -limits.max_likeliness:
            return (
                f"{where}: likelier than draws are by {-rollout.surprise:.1f} standard deviations, at most "
                f"{limits.max_likeliness:g} allowed"
            )
    mean = mean_margin(figures)
    if mean > limits.mean_margin:
        return f"tokens {mean:.5f} below the drawn ones on average, at most {limits.mean_margin:g} allowed"
    return None


def logprobs(figures: Sequence[RolloutFigures], limits: Thresholds) -> str | None:
    worst = max(figures, key=lambda rollout: rollout.logprob_error)
    if worst.logprob_error > limits.logprob_error:
        return (
            f"rollout ({worst.group}, {worst.sample}): a logprob {worst.logprob_error:.3f} off, at most "
            f"{limits.logprob_error:g} allowed"
        )
    return None


def regeneration(figures: Sequence[RolloutFigures], limits: Thresholds) -> str | None:
    """Of the rollout that was sampled again, if one was."""
    for rollout in figures:
        found = rollout.resampled
        if found is not None and found.max_margin > limits.max_margin:
            return (
                f"rollout ({rollout.group}, {rollout.sample}), sampled again: a token {found.max_margin:.3f} below the "
                f"draw, at most {limits.max_margin:g} allowed"
            )
    return None


PROOF_CHECKS: tuple[tuple[RejectReason, Check], ...] = (
    (RejectReason.ACTIVATIONS, activations),
    (RejectReason.DRAWS, draws),
    (RejectReason.LOGPROBS, logprobs),
    (RejectReason.REGENERATION, regeneration),
)


def proof_problem(figures: Sequence[RolloutFigures], limits: Thresholds) -> tuple[RejectReason, str] | None:
    """The first check that fails, and what it saw."""
    for reason, check in PROOF_CHECKS:
        if (detail := check(figures, limits)) is not None:
            return reason, detail
    return None


def measured(figures: Sequence[RolloutFigures]) -> dict[str, float]:
    """What a verdict tells of the figures."""
    audits = {}
    for position, rollout in enumerate(figures):
        if rollout.resampled is not None:
            audits = {
                AUDITED: float(position),
                "audit/num_tokens": float(rollout.resampled.num_tokens),
                "audit/num_differences": float(rollout.resampled.num_differences),
                "audit/max_margin": rollout.resampled.max_margin,
            }
    return audits | {
        "proof/activation_chunk": max((max(each.activation_chunks, default=0.0) for each in figures), default=0.0),
        DISTANCE: submission_distance(figures),
        "proof/least_forgery": min((each.least_forgery for each in figures if each.num_tokens), default=0.0),
        "proof/max_margin": max((each.max_margin for each in figures), default=0.0),
        MEAN_MARGIN: mean_margin(figures),
        "proof/num_margins": float(sum(each.num_margins for each in figures)),
        "proof/least_surprise": min((each.surprise for each in figures), default=0.0),
        "proof/logprob_error": max((each.logprob_error for each in figures), default=0.0),
    }
