"""REINFORCE with an importance weight: what RLOO and REINFORCE++ advantages are usually given to.

    L_t = -sg[w] * A_t * pi_t          w = pi / mu at token, sequence or geometric level, bounded as `rl.guards`

The weight is detached: otherwise the gradient gains a term that is not the policy's. The value means
nothing.
"""

from dataclasses import dataclass

import torch

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.checks import require_loss_tokens
from farflung.rl.guards import GuardMode, GuardParams, Level, guard_weight, importance_weight
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import select_policies


@dataclass(frozen=True, kw_only=True, slots=True)
class ReinforceParams:
    """Token weights truncated at 2, as TIS. "off" is plain REINFORCE, right on-policy alone."""

    weight_mode: GuardMode = "truncate"
    weight_level: Level = "token"
    weight_low: float = 0.5
    weight_high: float = 2.0
    aggregation: Aggregation = "token_mean"
    max_length_tokens: int | None = None

    def __post_init__(self) -> None:
        require_aggregation(self.aggregation, self.max_length_tokens)
        _ = self.guard

    @property
    def guard(self) -> GuardParams:
        """Raises `ValueError` as it does."""
        return GuardParams(mode=self.weight_mode, level=self.weight_level, low=self.weight_low, high=self.weight_high)


def reinforce_loss(inputs: LossInputs, params: ReinforceParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors; needs sequences at the sequence levels."""
    require_loss_tokens(num_loss_tokens)
    policies = select_policies(inputs)
    log_ratio_N = policies.log_ratio("behaviour").detach()
    weight_N = guard_weight(log_ratio_N, policies.mask_N, params.guard, inputs.sequences)
    loss_N = -weight_N * policies.advantages_N * policies.pi_N
    loss = aggregate(loss_N, inputs, params.aggregation, num_loss_tokens, params.max_length_tokens)
    with torch.no_grad():
        ratio_N = importance_weight(log_ratio_N, policies.mask_N, params.weight_level, inputs.sequences)
        low_N = (ratio_N < params.weight_low) & (params.weight_mode == "band")
        high_N = ratio_N > params.weight_high
        shares = {
            "clip_ratio/low_mean": low_N,
            "clip_ratio/high_mean": high_N,
            "clip_ratio/region_mean": low_N | high_N,
            "is_masked": weight_N == 0,
        }
        metrics = policy_metrics(inputs, loss, ratio_N=ratio_N, raw_weight_N=policies.raw_weight, shares=shares)
    return LossOutputs(loss=loss, metrics=metrics)
