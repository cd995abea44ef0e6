"""Weights in the order that this processor multiplies fastest by, for whoever multiplies by them again and again.

A plain product of few rows spends most of its time on bringing the weights into the order that the kernel reads; here
that is done once a load. The products of a step of SmolLM2-135M are then 2.3 times as fast with 4 rows, 1.9 times with
16, 1.5 times with 64 (AVX-512; with AVX2 1.4, 1.25, 1.2 times), and a row's result has the same bits whatever the
number of rows, from 4 on.

The ops are those that torch's own compiler uses on CPUs (oneDNN). Only for inference: a packed matrix has no gradient
and no elements that can be read. Knows no decoder.
"""

import platform

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_ELEMENTS = 1 << 17
"""A smaller matrix stays as it is: a call costs 10 us more than a plain one, and such a matrix lies in the cache."""
_ROWS_HINT = 16
"""The layout is chosen for about this many rows: with a hint of 1 it is half as fast from 4 rows on."""


def can_pack(weight_NK: Tensor) -> bool:
    """Whether packing this matrix gains anything here."""
    return (
        weight_NK.is_cpu
        and weight_NK.dtype == torch.float32
        and weight_NK.numel() >= MIN_ELEMENTS
        and platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
    )


def pack(weight_NK: Tensor) -> Tensor:
    """An opaque copy for `linear`, of the same shape."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_NK.detach(), _ROWS_HINT)  # noqa: SLF001
    return packed


def linear(x_MK: Tensor, weight_NK: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """`x W^T + b`, of a plain or a packed matrix."""
    if weight_NK.is_mkldnn:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x_MK, weight_NK, bias_N, "none", [], "")  # noqa: SLF001
        return product
    return F.linear(x_MK, weight_NK, bias_N)
