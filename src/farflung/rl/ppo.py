"""PPO's policy loss: the clipped surrogate, arXiv 1707.06347.

    L_t = -min( r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t )

With `delta` it is two-sided (`rl.clip`). The ratio is against mu ("behaviour") or prox ("decoupled": add a guard).
Advantages from a critic: `rl.gae`; its loss: `rl.value`.
"""

from dataclasses import dataclass
from typing import get_args

import torch

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.checks import require, require_clip, require_loss_tokens, require_name
from farflung.rl.clip import clip_masks, clipped_objective
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import Anchor, select_policies


@dataclass(frozen=True, kw_only=True, slots=True)
class PpoParams:
    """Defaults of the paper."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    delta: float | None = None
    """Largest ratio that counts against a token with negative advantage; None = unbounded. Dual clip: usually 3."""
    anchor: Anchor = "behaviour"
    aggregation: Aggregation = "token_mean"
    max_length_tokens: int | None = None

    def __post_init__(self) -> None:
        require_clip(self.clip_low, self.clip_high)
        require(
            self.delta is None or self.delta > 1 + self.clip_high,
            f"delta is {self.delta}: it must be above 1 + clip_high = {1 + self.clip_high}, or the clip never acts",
        )
        require_name("anchor", self.anchor, get_args(Anchor))
        require_aggregation(self.aggregation, self.max_length_tokens)


def ppo_loss(inputs: LossInputs, params: PpoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors."""
    require_loss_tokens(num_loss_tokens)
    policies = select_policies(inputs)
    ratio_N = policies.ratio(params.anchor)
    clip_low, clip_high, delta = params.clip_low, params.clip_high, params.delta
    objective_N = clipped_objective(ratio_N, policies.advantages_N, clip_low=clip_low, clip_high=clip_high, delta=delta)
    loss = aggregate(-objective_N, inputs, params.aggregation, num_loss_tokens, params.max_length_tokens)
    with torch.no_grad():
        shares = clip_masks(ratio_N, policies.advantages_N, clip_low=clip_low, clip_high=clip_high, delta=delta)
        metrics = policy_metrics(inputs, loss, ratio_N=ratio_N, raw_weight_N=policies.raw_weight, shares=shares)
    return LossOutputs(loss=loss, metrics=metrics)
