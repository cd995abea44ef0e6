"""The default objective: token-level, two-sided clipped GRPO in decoupled (three-policy) form.

    mu    behaviour logprobs, of the policy that sampled
    prox  trainer logprobs when the version began, no gradient
    pi    trainer logprobs

    w_t  = exp(prox_t - mu_t), masked or clipped when out of [weight_low, weight_high]; no gradient
    r_t  = exp(pi_t - prox_t)
    L_t  = -w_t * min( min(r_t, delta) * A_t,  clip(r_t, 1 - clip_low, 1 + clip_high) * A_t )
    loss = sum_t m_t L_t / N

The clip is centred on the recent policy; w repairs staleness and engine mismatch. Decoupling: arXiv 2110.00641, AReaL
2505.24298; clip-higher: DAPO 2503.14476; delta bounds the loss of a token with negative advantage that was rare under
the anchor: INTELLECT-2 2505.07291; the band on w: IcePop 2510.18855. `anchor="behaviour"` is the two-policy form,
r_t = exp(pi_t - mu_t) without w: the ratio carries the correction already, a weight would count it twice.
Other sums than sum_t m_t L_t / N: `rl.aggregate`.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.checks import require, require_clip, require_loss_tokens, require_name
from farflung.rl.clip import clip_masks, clipped_objective
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import Anchor, select_policies

WeightMode = Literal["mask", "clip"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GrpoParams:
    """Bounds of the objective. Defaults: clip of DAPO, delta of INTELLECT-2, band of IcePop."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    delta: float = 4.0
    """Largest ratio that counts against a token with negative advantage."""
    weight_low: float = 0.5
    weight_high: float = 5.0
    weight_mode: WeightMode = "mask"
    """Out of the band: "mask" drops the token (rejection beats truncation on toxic tails), "clip" limits the weight."""
    anchor: Anchor = "decoupled"
    aggregation: Aggregation = "token_mean"
    max_length_tokens: int | None = None
    """What `aggregation="constant"` divides by."""

    def __post_init__(self) -> None:
        require_clip(self.clip_low, self.clip_high)
        require(
            self.delta > 1 + self.clip_high,
            f"delta is {self.delta}: it must be above 1 + clip_high = {1 + self.clip_high}, or the clip never acts; "
            "raise delta (usually 4)",
        )
        require(
            0 <= self.weight_low < 1 < self.weight_high,
            f"the weight band is [{self.weight_low}, {self.weight_high}]: it must hold 1, the weight of an "
            "on-policy token; usually [0.5, 5.0]",
        )
        require_name("weight_mode", self.weight_mode, get_args(WeightMode))
        require_name("anchor", self.anchor, get_args(Anchor))
        require_aggregation(self.aggregation, self.max_length_tokens)


def grpo_loss(inputs: LossInputs, params: GrpoParams, num_loss_tokens: int) -> LossOutputs:
    """The micro-batch's part of the loss, and its metrics as token sums.

    Args:
        inputs: [N] tensors.
        params: bounds.
        num_loss_tokens: trainable tokens of the *whole* optimizer step over all micro-batches and ranks, counted from
            the loss mask before any ratio is masked. With an all-reduce that averages, multiply the loss by the ranks.

    Raises:
        ValueError: `num_loss_tokens` is below 1.
    """
    require_loss_tokens(num_loss_tokens)
    policies = select_policies(inputs)
    raw_weight_N = policies.raw_weight
    ratio_N = policies.ratio(params.anchor)
    is_decoupled = params.anchor == "decoupled"
    weight_N = _bound_weight(raw_weight_N, params) if is_decoupled else torch.ones_like(raw_weight_N)
    bounds = {"clip_low": params.clip_low, "clip_high": params.clip_high, "delta": params.delta}
    loss_N = -weight_N * clipped_objective(ratio_N, policies.advantages_N, **bounds)
    loss = aggregate(loss_N, inputs, params.aggregation, num_loss_tokens, params.max_length_tokens)
    with torch.no_grad():
        shares = {
            **clip_masks(ratio_N, policies.advantages_N, **bounds),
            "sampling/importance_sampling_ratio/fraction_low": raw_weight_N < params.weight_low,
            "sampling/importance_sampling_ratio/fraction_high": raw_weight_N > params.weight_high,
            "is_masked": weight_N == 0,
        }
        metrics = policy_metrics(inputs, loss, ratio_N=ratio_N, raw_weight_N=raw_weight_N, shares=shares)
    return LossOutputs(loss=loss, metrics=metrics)


def _bound_weight(raw_weight_N: Tensor, params: GrpoParams) -> Tensor:
    if params.weight_mode == "clip":
        return raw_weight_N.clamp(params.weight_low, params.weight_high)
    in_band_N = (raw_weight_N >= params.weight_low) & (raw_weight_N <= params.weight_high)
    return torch.where(in_band_N, raw_weight_N, 0)
