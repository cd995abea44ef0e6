"""The figures that every policy objective reports, as token sums and extremes.

All are measured on raw ratios and weights: after clamping nothing is ever out of bounds.
"""

from collections.abc import Mapping

from torch import Tensor

from farflung.rl.loss import LossInputs
from farflung.rl.metrics import LOSS, NUM_TOKENS, SQUARED_WEIGHT, token_max, token_min, token_sum


def advantage_metrics(inputs: LossInputs) -> dict[str, Tensor]:
    """Of the advantages as they were computed, before any weight; shares are of loss tokens."""
    advantages_N, mask_N = inputs.advantages_N.detach(), inputs.loss_mask_N
    return {
        "sum/advantage/mean": token_sum(advantages_N, mask_N),
        "sum/advantage/positive": token_sum(advantages_N > 0, mask_N),
        "sum/advantage/negative": token_sum(advantages_N < 0, mask_N),
        "max/advantage/max": token_max(advantages_N, mask_N),
        "min/advantage/min": token_min(advantages_N, mask_N),
    }


def policy_metrics(
    inputs: LossInputs,
    loss: Tensor,
    *,
    ratio_N: Tensor,
    raw_weight_N: Tensor,
    shares: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Call without gradient.

    Args:
        ratio_N: pi / anchor, as the objective uses it, before any bound.
        raw_weight_N: prox / mu: staleness and engine mismatch.
        shares: further [N] values or bools, by the name of their mean over tokens.
    """
    mask_N = inputs.loss_mask_N
    mismatch_kl_N = raw_weight_N - raw_weight_N.log() - 1
    logp_difference_N = raw_weight_N.log().abs()
    sums = {
        **shares,
        "ratio/mean": ratio_N,
        "ppo_kl": ratio_N - ratio_N.log() - 1,
        "sampling/importance_sampling_ratio/mean": raw_weight_N,
        SQUARED_WEIGHT: raw_weight_N.square(),
        "sampling/sampling_logp_difference/mean": logp_difference_N,
        "mismatch_kl/mean": mismatch_kl_N,
    }
    if inputs.entropy_N is not None:
        sums["entropy"] = inputs.entropy_N.detach()
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
