"""CISPO, arXiv 2506.13585 (MiniMax-M1); ScaleRL 2510.13786: the weight is bounded, no token loses its gradient.

    L_t = -sg[ clip(r_t, ratio_low, ratio_high) ] * A_t * pi_t

`ratio_low` and `ratio_high` are the bounds *themselves*, not distances from 1 (as TRL; SkyRL and verl add 1). The loss
has no meaning as a value; its gradient is that of the policy, weighted.
"""

from dataclasses import dataclass
from typing import get_args

import torch

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.checks import require, require_loss_tokens, require_name
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import Anchor, select_policies


@dataclass(frozen=True, kw_only=True, slots=True)
class CispoParams:
    """Defaults of ScaleRL: an upper bound alone."""

    ratio_low: float = 0.0
    ratio_high: float = 5.0
    anchor: Anchor = "behaviour"
    aggregation: Aggregation = "token_mean"
    max_length_tokens: int | None = None

    def __post_init__(self) -> None:
        require(
            0 <= self.ratio_low < 1 < self.ratio_high,
            f"the ratio's bounds are [{self.ratio_low}, {self.ratio_high}]: they must hold 1, usually [0, 5]",
        )
        require_name("anchor", self.anchor, get_args(Anchor))
        require_aggregation(self.aggregation, self.max_length_tokens)


def cispo_loss(inputs: LossInputs, params: CispoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors."""
    require_loss_tokens(num_loss_tokens)
    policies = select_policies(inputs)
    ratio_N = policies.ratio(params.anchor).detach()
    loss_N = -ratio_N.clamp(params.ratio_low, params.ratio_high) * policies.advantages_N * policies.pi_N
    loss = aggregate(loss_N, inputs, params.aggregation, num_loss_tokens, params.max_length_tokens)
    with torch.no_grad():
        low_N, high_N = ratio_N < params.ratio_low, ratio_N > params.ratio_high
        shares = {
            "clip_ratio/low_mean": low_N,
            "clip_ratio/high_mean": high_N,
            "clip_ratio/region_mean": low_N | high_N,
        }
        metrics = policy_metrics(inputs, loss, ratio_N=ratio_N, raw_weight_N=policies.raw_weight, shares=shares)
    return LossOutputs(loss=loss, metrics=metrics)
