"""The clipped surrogate that most objectives share.

    clipped      min( r * A, clip(r, 1 - clip_low, 1 + clip_high) * A )            PPO, arXiv 1707.06347
    two-sided    min( min(r, delta) * A, clip(r, 1 - clip_low, 1 + clip_high) * A )

delta bounds the loss of a token with A < 0 that was rare under the anchor, which plain PPO leaves unbounded: dual clip,
arXiv 1912.09729, with c = delta; INTELLECT-2, arXiv 2505.07291. For A > 0 it changes nothing.
"""

import torch
from torch import Tensor


def clipped_objective(
    ratio_N: Tensor, advantages_N: Tensor, *, clip_low: float, clip_high: float, delta: float | None = None
) -> Tensor:
    """[N] what each token's loss is the negative of."""
    free_N = ratio_N if delta is None else ratio_N.clamp(max=delta)
    clipped_N = ratio_N.clamp(1 - clip_low, 1 + clip_high)
    return torch.minimum(free_N * advantages_N, clipped_N * advantages_N)


def clip_masks(
    ratio_N: Tensor, advantages_N: Tensor, *, clip_low: float, clip_high: float, delta: float | None = None
) -> dict[str, Tensor]:
    """[N] bool by metric name: where a bound holds the objective constant, measured on the raw ratio."""
    low_N = (ratio_N < 1 - clip_low) & (advantages_N < 0)
    high_N = (ratio_N > 1 + clip_high) & (advantages_N > 0)
    masks = {"clip_ratio/low_mean": low_N, "clip_ratio/high_mean": high_N, "clip_ratio/region_mean": low_N | high_N}
    if delta is not None:
        delta_N = (ratio_N > delta) & (advantages_N < 0)
        masks |= {"clip_ratio/delta_mean": delta_N, "clip_ratio/region_mean": low_N | high_N | delta_N}
    return masks
