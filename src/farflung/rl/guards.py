"""Off-policy guards: what a token weighs when the policy that sampled is not the one that is trained.

Raw weight at one of three levels, from the log-weight l_t = prox_t - mu_t (or pi_t - mu_t):

    token       w_t = exp(l_t)                low variance, biased in long sequences
    sequence    w_t = exp(sum_t l_t)          unbiased, its spread grows with length
    geometric   w_t = exp(mean_t l_t)         near 1 whatever the length

What happens to it:

    truncate    min(w, high)                  TIS, fengyao.notion.site/off-policy-rl; high 2
    mask        w where w <= high, else 0     TRL `sequence_mask`; high 3
    band        w where low <= w <= high      IcePop, arXiv 2510.18855; [0.5, 5]

The bounds may be judged at another level than the weight's (a sequence kept by its geometric mean, weights per token:
seq-mask-TIS, OpenRLHF). Judged at "k3" a sequence is kept while mean_t(exp(l_t) - 1 - l_t) <= high (verl, AReaL): nats
of drift, whatever its sign. Bounds may act where A < 0 alone: band, geometric, [exp(-d), 1e9] is then OPSM, which drops
a sequence of negative advantage when mean_t(mu - prox) > d (DeepSeek-V3.2, arXiv 2512.02556).
Rejection beats truncation on toxic tails (richardli.xyz/rl-collapse-3). Where the ratio pi / mu carries the correction
already (`anchor="behaviour"`), or the objective has weights of its own (`rl.grpo`), a weight would count it twice:
there a guard only keeps or drops.

All functions are pure, take detached tensors, and compose: multiply weights, intersect what is kept.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from farflung.rl.checks import require, require_name
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import token_max, token_min, token_sum
from farflung.rl.ratio import bounded_exp, select_policies
from farflung.rl.sequences import Sequences

GuardMode = Literal["off", "truncate", "mask", "band"]
Level = Literal["token", "sequence", "geometric"]
Judge = Literal["token", "sequence", "geometric", "k3"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardParams:
    """One guard. Off by default: an objective's own bounds may be guard enough."""

    mode: GuardMode = "off"
    level: Level = "token"
    """Of the weight."""
    judged_at: Judge | None = None
    """Of what the bounds apply to; None = the weight's own."""
    low: float = 0.5
    """Used by "band" alone."""
    high: float = 2.0
    only_negative: bool = False
    """Tokens with advantage >= 0 keep their raw weight: what they push up cannot run away."""

    def __post_init__(self) -> None:
        require_name("mode", self.mode, get_args(GuardMode))
        require_name("level", self.level, get_args(Level))
        require_name("judged_at", self.judged_at or self.level, get_args(Judge))
        self._require_bounds()
        require(
            self.mode != "truncate" or self.judged_at in (None, self.level),
            f"judged_at is {self.judged_at!r} with mode 'truncate' and level {self.level!r}: what is truncated is "
            "judged at its own level",
        )

    def _require_bounds(self) -> None:
        if self.judged_at == "k3":
            require(self.high > 0, f"the guard's high is {self.high}: the largest mean k3 must be above 0 nats")
            require(
                self.mode in ("off", "mask"), f"mode is {self.mode!r} judged at k3, which has no lower bound: use mask"
            )
            return
        require(
            0 <= self.low < 1 <= self.high,
            f"the guard's bounds are [{self.low}, {self.high}]: they must hold 1, the weight of an on-policy token",
        )


NO_GUARD = GuardParams()


def importance_weight(log_weight_N: Tensor, mask_N: Tensor, level: Level, sequences: Sequences | None) -> Tensor:
    """[N] raw weight; the same at all tokens of a sequence for the two sequence levels.

    Raises:
        ValueError: a sequence level without sequences.
    """
    log_weight_N = log_weight_N.detach()
    if level == "token":
        return bounded_exp(log_weight_N)
    if sequences is None:
        raise ValueError(f"level is {level!r} and inputs.sequences is None: it needs the document index")
    combine = sequences.sum if level == "sequence" else sequences.mean
    return sequences.spread(bounded_exp(combine(log_weight_N, mask_N)))


def judged_value(log_weight_N: Tensor, mask_N: Tensor, judge: Judge, sequences: Sequences | None) -> Tensor:
    """[N] what the bounds are compared with: a raw weight, or the sequence's mean k3.

    Raises:
        ValueError: a sequence level without sequences.
    """
    if judge != "k3":
        return importance_weight(log_weight_N, mask_N, judge, sequences)
    if sequences is None:
        raise ValueError("judged at 'k3' and inputs.sequences is None: it needs the document index")
    log_weight_N = log_weight_N.detach()
    return sequences.spread(sequences.mean(bounded_exp(log_weight_N) - 1 - log_weight_N, mask_N))


def truncate(weight_N: Tensor, high: float) -> Tensor:
    """[N] min(w, high)."""
    return weight_N.clamp(max=high)


def mask_above(weight_N: Tensor, high: float, judged_N: Tensor | None = None) -> Tensor:
    """[N] w where what is judged (w itself if None) is at most `high`, else 0."""
    return torch.where((weight_N if judged_N is None else judged_N) <= high, weight_N, 0)


def mask_outside(weight_N: Tensor, low: float, high: float, judged_N: Tensor | None = None) -> Tensor:
    """[N] w where what is judged (w itself if None) lies in [low, high], else 0."""
    judged_N = weight_N if judged_N is None else judged_N
    return torch.where((judged_N >= low) & (judged_N <= high), weight_N, 0)


def guard_weight(
    log_weight_N: Tensor, mask_N: Tensor, params: GuardParams, sequences: Sequences | None = None
) -> Tensor:
    """[N] bounded weight, 1 everywhere when the guard is off.

    Raises:
        ValueError: a sequence level without sequences.
    """
    if params.mode == "off":
        return torch.ones_like(log_weight_N)
    weight_N = importance_weight(log_weight_N, mask_N, params.level, sequences)
    if params.mode == "truncate":
        return truncate(weight_N, params.high)
    judged_N = judged_value(log_weight_N, mask_N, params.judged_at or params.level, sequences)
    if params.mode == "mask":
        return mask_above(weight_N, params.high, judged_N)
    return mask_outside(weight_N, params.low, params.high, judged_N)


def require_fit(params: GuardParams, *, weighs: bool) -> None:
    """Raises `ValueError` for a weight where there is one already."""
    require(
        weighs or params.mode != "truncate",
        "the guard's mode is 'truncate' where the objective has a correction already (anchor 'behaviour', or weights "
        "of its own as grpo): a weight would count it twice; use mask or band, or an objective with anchor decoupled",
    )


def guarded(inputs: LossInputs, params: GuardParams, *, weighs: bool) -> tuple[LossInputs, dict[str, Tensor]]:
    """(inputs with advantages times weight, metrics of the raw weight).

    Every objective scales with its advantages and looks at their sign alone, so that a constant weight >= 0 may stand
    there. Masked tokens still count in the normaliser.

    Args:
        weighs: weights are prox / mu; otherwise 0 or 1, because the objective corrects for the rest itself.

    Raises:
        ValueError: "truncate" without `weighs`, or a sequence level without sequences.
    """
    require_fit(params, weighs=weighs)
    if params.mode == "off":
        return inputs, {}
    with torch.no_grad():
        policies = select_policies(inputs)
        mask_N = policies.mask_N
        log_weight_N = policies.prox_N - policies.mu_N
        weight_N = guard_weight(log_weight_N, mask_N, params, inputs.sequences)
        if params.only_negative:
            free_N = importance_weight(log_weight_N, mask_N, params.level, inputs.sequences)
            weight_N = torch.where(policies.advantages_N < 0, weight_N, free_N)
        if not weighs:
            weight_N = (weight_N > 0).to(weight_N.dtype)
        raw_N = judged_value(log_weight_N, mask_N, params.judged_at or params.level, inputs.sequences)
        low = params.low if params.mode == "band" else 0.0
        metrics = {
            "sum/guard/weight_mean": token_sum(weight_N, mask_N),
            "sum/guard/fraction_low": token_sum(raw_N < low, mask_N),
            "sum/guard/fraction_high": token_sum(raw_N > params.high, mask_N),
            "sum/guard/is_masked": token_sum(weight_N == 0, mask_N),
            "min/guard/raw_min": token_min(raw_N, mask_N),
            "max/guard/raw_max": token_max(raw_N, mask_N),
        }
        return replace(inputs, advantages_N=policies.advantages_N * weight_N), metrics
