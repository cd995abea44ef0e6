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
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.metrics import LOSS, NUM_TOKENS, token_max, token_min, token_sum

Anchor = Literal["decoupled", "behaviour"]
WeightMode = Literal["mask", "clip"]
MAX_LOG_RATIO = 20.0
"""exp(20) is 5e8: far beyond every bound, far from overflow. As verl and OpenRLHF."""


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

    def __post_init__(self) -> None:
        _require(0 < self.clip_low < 1, f"clip_low is {self.clip_low}: it must be above 0 and below 1, usually 0.2")
        _require(self.clip_high > 0, f"clip_high is {self.clip_high}: it must be above 0, usually 0.28")
        _require(
            self.delta > 1 + self.clip_high,
            f"delta is {self.delta}: it must be above 1 + clip_high = {1 + self.clip_high}, or the clip never acts; "
            "raise delta (usually 4)",
        )
        _require(
            0 <= self.weight_low < 1 < self.weight_high,
            f"the weight band is [{self.weight_low}, {self.weight_high}]: it must hold 1, the weight of an "
            "on-policy token; usually [0.5, 5.0]",
        )
        _require_name("weight_mode", self.weight_mode, get_args(WeightMode))
        _require_name("anchor", self.anchor, get_args(Anchor))


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
    _require(num_loss_tokens >= 1, f"num_loss_tokens is {num_loss_tokens}: it must be >= 1, skip a step without tokens")
    mask_N = inputs.loss_mask_N
    # Selected before any arithmetic and again at the end, never multiplied by 0: what a masked position holds, inf and
    # nan included, reaches neither the loss nor, on the way back, the gradient.
    pi_N = torch.where(mask_N, inputs.trainer_logprobs_N, 0)
    mu_N = inputs.behaviour_logprobs_N.detach()
    prox_N = (inputs.trainer_logprobs_N if inputs.prox_logprobs_N is None else inputs.prox_logprobs_N).detach()
    advantages_N = inputs.advantages_N.detach()

    raw_weight_N = _exp(prox_N - mu_N)
    if params.anchor == "decoupled":
        ratio_N = _exp(pi_N - prox_N)
        weight_N = _bound_weight(raw_weight_N, params)
    else:
        ratio_N = _exp(pi_N - mu_N)
        weight_N = torch.ones_like(raw_weight_N)
    loss_N = -weight_N * _objective(ratio_N, advantages_N, params)
    loss = torch.where(mask_N, loss_N, 0).sum() / num_loss_tokens
    with torch.no_grad():
        metrics = _metrics(inputs, params, loss, ratio_N, raw_weight_N, weight_N, advantages_N)
    return LossOutputs(loss=loss, metrics=metrics)


def _exp(log_ratio_N: Tensor) -> Tensor:
    return log_ratio_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _bound_weight(raw_weight_N: Tensor, params: GrpoParams) -> Tensor:
    if params.weight_mode == "clip":
        return raw_weight_N.clamp(params.weight_low, params.weight_high)
    in_band_N = (raw_weight_N >= params.weight_low) & (raw_weight_N <= params.weight_high)
    return torch.where(in_band_N, raw_weight_N, 0)


def _objective(ratio_N: Tensor, advantages_N: Tensor, params: GrpoParams) -> Tensor:
    """What each token's loss is the negative of, before the weight."""
    capped_N = ratio_N.clamp(max=params.delta) * advantages_N
    clipped_N = ratio_N.clamp(1 - params.clip_low, 1 + params.clip_high) * advantages_N
    return torch.minimum(capped_N, clipped_N)


def _metrics(
    inputs: LossInputs,
    params: GrpoParams,
    loss: Tensor,
    ratio_N: Tensor,
    raw_weight_N: Tensor,
    weight_N: Tensor,
    advantages_N: Tensor,
) -> dict[str, Tensor]:
    """Token sums and extremes, all measured on raw ratios: after clamping nothing is ever out of bounds."""
    mask_N = inputs.loss_mask_N
    low_N = (ratio_N < 1 - params.clip_low) & (advantages_N < 0)
    high_N = (ratio_N > 1 + params.clip_high) & (advantages_N > 0)
    delta_N = (ratio_N > params.delta) & (advantages_N < 0)
    mismatch_kl_N = raw_weight_N - raw_weight_N.log() - 1
    logp_difference_N = raw_weight_N.log().abs()
    sums = {
        "clip_ratio/low_mean": low_N,
        "clip_ratio/high_mean": high_N,
        "clip_ratio/delta_mean": delta_N,
        "clip_ratio/region_mean": low_N | high_N | delta_N,
        "ratio/mean": ratio_N,
        "ppo_kl": ratio_N - ratio_N.log() - 1,
        "sampling/importance_sampling_ratio/mean": raw_weight_N,
        "sampling/importance_sampling_ratio/fraction_low": raw_weight_N < params.weight_low,
        "sampling/importance_sampling_ratio/fraction_high": raw_weight_N > params.weight_high,
        "sampling/sampling_logp_difference/mean": logp_difference_N,
        "mismatch_kl/mean": mismatch_kl_N,
        "is_masked": weight_N == 0,
    }
    if inputs.entropy_N is not None:
        sums["entropy"] = inputs.entropy_N
    return {
        NUM_TOKENS: mask_N.sum(),
        LOSS: loss.detach(),
        **{f"sum/{name}": token_sum(values_N, mask_N) for name, values_N in sums.items()},
        "max/ratio/max": token_max(ratio_N, mask_N),
        "max/mismatch_kl/max": token_max(mismatch_kl_N, mask_N),
        "max/sampling/importance_sampling_ratio/max": token_max(raw_weight_N, mask_N),
        "min/sampling/importance_sampling_ratio/min": token_min(raw_weight_N, mask_N),
        "max/sampling/sampling_logp_difference/max": token_max(logp_difference_N, mask_N),
    }


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _require_name(field: str, value: str, valid: tuple[str, ...]) -> None:
    _require(value in valid, f"{field} is {value!r}: it must be one of {', '.join(valid)}")
