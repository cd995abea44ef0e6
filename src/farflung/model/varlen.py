"""Causal attention over documents that lie end to end, without padding: one flash-attention kernel on GPUs.

Half precision only; everything else takes the padded way (`DecoderLayer.attend`), which computes the same.
"""

import torch
from torch import Tensor


def can_attend_packed(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there is a kernel."""
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)


def attend_packed(
    query_PHd: Tensor,
    key_PKd: Tensor,
    value_PKd: Tensor,
    bounds_D1: Tensor,
    max_length: int,
    *,
    window: int | None,
    scale: float | None,
) -> Tensor:
    """[P, H, d] like the queries.

    Args:
        bounds_D1: int32 [documents + 1]; document i is rows bounds[i] to bounds[i + 1].
        max_length: of the longest document.
        window: tokens that one looks back over, itself included; None = all.
        scale: of the scores; None = d^-0.5.
    """
    # Registers operators with torch, which a start without a GPU need not wait for.
    from torch.nn.attention.varlen import varlen_attn

    result = varlen_attn(
        query_PHd,
        key_PKd,
        value_PKd,
        bounds_D1,
        bounds_D1,
        max_length,
        max_length,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query_PHd.shape[1] != key_PKd.shape[1],
    )
    assert isinstance(result, Tensor)
    return result
