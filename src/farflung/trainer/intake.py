"""From an accepted submission to graded groups: re-hash, read, pair every rollout with the validator's reward.

What the worker claims about rewards is never looked at. The validator is believed on worth, not on form: nothing that
could stop the trainer gets past here. Does not know the network.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from farflung.errors import PeerFault
from farflung.rl.types import RolloutGroup
from farflung.trainer.comparison import comparison_groups, do_spans_fit
from farflung.validation.proof_checks import proof_problem
from farflung.wire.batch import SlotOutcome
from farflung.wire.canonical import sha256_hex
from farflung.wire.pool import PoolSpec
from farflung.wire.proof import Thresholds
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import read_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import EvidenceBundle, RejectReason, RewardResult


@dataclass(frozen=True, kw_only=True, slots=True)
class IntakeRules:
    """What a rollout has to look like for the learner."""

    pool: PoolSpec
    vocab_size: int
    reserved_token_ids: tuple[int, ...]

    @property
    def positions(self) -> list[tuple[int, int]]:
        """(group, sample) of every rollout of a slot, in order."""
        groups, samples = range(self.pool.groups_per_slot), range(self.pool.rollouts_per_group)
        return [(group, sample) for group in groups for sample in samples]


def graded_groups(
    outcome: SlotOutcome, data: bytes, evidence: EvidenceBundle, rules: IntakeRules
) -> tuple[RolloutGroup, ...]:
    """The groups of an accepted slot.

    Raises:
        PeerFault: the bytes are not the ones that were judged, the evidence does not fit them, or the learner could
            not take them.
    """
    submission = outcome.submission
    assert submission is not None, "an accepted slot has a submission"
    rollouts = _read(submission, data, rules.pool)
    for reason, detail in _problems(outcome, rollouts, evidence, rules):
        raise PeerFault(reason, f"accepted slot {outcome.slot}: {detail}")
    if rules.pool.proofs is not None:
        rollouts = with_verifier_logprobs(rollouts, evidence, rules.pool.proofs.reject)
    size, indices = rules.pool.rollouts_per_group, outcome.task_indices
    return tuple(
        group
        for number, start in enumerate(range(0, len(rollouts), size))
        for group in comparison_groups(
            outcome.slot,
            rollouts[start : start + size],
            evidence.rewards[start : start + size],
            num_agents=rules.pool.environment.num_agents,
            task_index=indices[number] if number < len(indices) else None,
        )
    )


def with_verifier_logprobs(rollouts: Sequence[Rollout], evidence: EvidenceBundle, limits: Thresholds) -> list[Rollout]:
    """The rollouts with the logprobs that the validators' own prefill gave, in place of the sampler's.

    Several validators agree on outcome and rewards, and the figures are one's alone. So they are held against the rules
    once more: whoever accepts found them close to the sampler's, which every other one has compared with its own.

    Raises:
        PeerFault: the evidence has not one figure for each token, or nobody could accept with these figures.
    """
    if problem := proof_problem(evidence.figures, limits):
        raise PeerFault(problem[0], f"accepted with figures that are rejected: {problem[1]}")
    replaced = []
    for rollout, figures, result in zip(rollouts, evidence.figures, evidence.rewards, strict=True):
        if not figures.num_tokens and result.reward is None:  # an episode that could not be replayed
            replaced.append(rollout)
            continue
        try:
            logprobs_T = np.frombuffer(base64.b64decode(figures.logprobs, validate=True), dtype="<f4")
            own = replace(rollout, logprobs=logprobs_T.astype(np.float32))
        except ValueError as error:
            raise PeerFault(RejectReason.LOGPROBS, f"({rollout.group}, {rollout.sample}): {error}") from None
        far = float(np.abs(own.logprobs - rollout.logprobs).max())
        if not far <= limits.logprob_error:
            detail = f"({rollout.group}, {rollout.sample}): a validator's logprob is {far:.3f} from the sampler's"
            raise PeerFault(RejectReason.LOGPROBS, detail)
        replaced.append(own)
    return replaced


def _read(submission: Submission, data: bytes, pool: PoolSpec) -> list[Rollout]:
    if sha256_hex(data) != submission.file_digest:
        raise PeerFault(RejectReason.FILE_DIGEST, f"{submission.file_key} is not the file that was judged")
    return read_rollouts(
        data,
        pool_digest=pool.digest(),
        max_rollouts=pool.rollouts_per_slot,
        max_tokens_per_list=max(pool.max_prompt_tokens, pool.max_completion_tokens),
    )


def _problems(
    outcome: SlotOutcome, rollouts: Sequence[Rollout], evidence: EvidenceBundle, rules: IntakeRules
) -> Iterator[tuple[RejectReason, str]]:
    pool = rules.pool
    for what, found in (("rollouts", rollouts), ("rewards", evidence.rewards)):
        if [(item.group, item.sample) for item in found] != rules.positions:
            wanted = f"{pool.groups_per_slot} groups of {pool.rollouts_per_group}, in order"
            yield RejectReason.ROLLOUT_COUNT, f"{len(found)} {what} are not those of {wanted}"
            return
    figures = [(each.group, each.sample) for each in evidence.figures]
    if pool.proofs is not None and figures != rules.positions:
        yield RejectReason.LOGPROBS, f"figures of {len(figures)} rollouts, not of all {len(rules.positions)}"
        return
    pairs = list(zip(rollouts, evidence.rewards, strict=True))
    if not all(do_spans_fit(rollout, result) for rollout, result in pairs):
        yield RejectReason.TRANSCRIPT, "turns of a rollout end behind its completion"
    versions = {rollout.policy_version for rollout in rollouts}
    if versions != {outcome.policy_version}:
        yield RejectReason.WRONG_LEASE, f"rollouts of versions {sorted(versions)}, not of {outcome.policy_version}"
    prompts = [rollout.prompt_tokens for rollout in rollouts]
    completions = [rollout.completion_tokens for rollout in rollouts]
    longest = (max(map(len, prompts)), max(map(len, completions)))
    if longest[0] > pool.max_prompt_tokens or longest[1] > pool.max_completion_tokens:
        allowed = (pool.max_prompt_tokens, pool.max_completion_tokens)
        yield RejectReason.TERMINATION, f"prompt and completion of up to {longest} tokens, allowed are {allowed}"
    tokens = np.concatenate(prompts + completions)
    if tokens.min() < 0 or tokens.max() >= rules.vocab_size:
        yield RejectReason.TOKEN_RANGE, f"ids from {tokens.min()} to {tokens.max()}, the vocabulary: {rules.vocab_size}"
    if np.isin(np.concatenate([_learned_from(*pair) for pair in pairs]), rules.reserved_token_ids).any():
        yield RejectReason.TOKEN_RANGE, "a completion has a reserved id"


def _learned_from(rollout: Rollout, result: RewardResult) -> NDArray[np.int32]:
    """The tokens that the model drew; between turns a template may write reserved ids. None of what has no reward."""
    tokens = rollout.completion_tokens[: None if result.reward is not None else 0]
    return np.concatenate([tokens[start:end] for start, end in result.spans]) if result.spans else tokens
