"""GSPO, arXiv 2507.18071: one ratio per sequence, clipped tightly.

    s_i  = exp( (1/T_i) sum_t m_it (pi_it - anchor_it) )
    L_it = -min( s_i * A_it, clip(s_i, 1 - clip_low, 1 + clip_high) * A_it )
    loss = (1/S) sum_i (1/T_i) sum_t m_it L_it

The mean, not the sum, of log-ratios: for [0.1, -0.2, 0.3] s is 1.0689 where the sum gives 1.2214, and noise of +-0.01
on 4,000 tokens leaves it near 1. Hence bounds two orders tighter than a token's. Gradient: `rl.ratio.sequence_ratio`.
"""

from dataclasses import dataclass
from typing import get_args

import torch

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.checks import require_clip, require_loss_tokens, require_name
from farflung.rl.clip import clip_masks, clipped_objective
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import Anchor, select_policies, sequence_ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class GspoParams:
    """Defaults of the paper."""

    clip_low: float = 3e-4
    clip_high: float = 4e-4
    anchor: Anchor = "behaviour"
    aggregation: Aggregation = "sequence_mean"
    max_length_tokens: int | None = None

    def __post_init__(self) -> None:
        require_clip(self.clip_low, self.clip_high)
        require_name("anchor", self.anchor, get_args(Anchor))
        require_aggregation(self.aggregation, self.max_length_tokens)


def gspo_loss(inputs: LossInputs, params: GspoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors; needs sequences."""
    require_loss_tokens(num_loss_tokens)
    policies = select_policies(inputs)
    anchor_N = policies.prox_N if params.anchor == "decoupled" else policies.mu_N
    ratio_N = sequence_ratio(policies, anchor_N, inputs.required_sequences)
    bounds = {"clip_low": params.clip_low, "clip_high": params.clip_high}
    objective_N = clipped_objective(ratio_N, policies.advantages_N, **bounds)
    loss = aggregate(-objective_N, inputs, params.aggregation, num_loss_tokens, params.max_length_tokens)
    with torch.no_grad():
        shares = clip_masks(ratio_N, policies.advantages_N, **bounds)
        metrics = policy_metrics(inputs, loss, ratio_N=ratio_N, raw_weight_N=policies.raw_weight, shares=shares)
    return LossOutputs(loss=loss, metrics=metrics)
