"""Rotary position embedding: pair i of a head turns by `position * theta^(-2i/d)`, as one complex product.

A pair lies in two neighbouring numbers here, so that the product is a single kernel; Hugging Face keeps its two
numbers d/2 apart. `weights.py` permutes the rows of the q and k projections between the two orders: attention scores
do not depend on the order of a head's numbers.

One table per decoder and base, so that a position has the same bits in training, in decoding and in verification.
"""

import math

import torch
from torch import Tensor

from farflung.model.rope_scaling import DynamicRope, LinearRope, Llama3Rope, LongRope, RopeScaling, YarnRope


class RopeTable:
    """`length * (cos + i sin)` of every position, grown on demand."""

    def __init__(
        self, frequencies: Tensor, *, dtype: torch.dtype, device: torch.device | str, length: float = 1.0
    ) -> None:
        """
        Args:
            frequencies: float32 [head_dim / 2], from `inverse_frequencies`.
            length: from `rotation_length`.
        """
        self._frequencies, self._length = frequencies, length
        self._dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
        self._device = device
        self._rotation = torch.empty(0, len(self._frequencies), dtype=self._dtype, device=device)

    def upto(self, num_positions: int) -> Tensor:
        """Complex [at least num_positions, head_dim / 2]. The rows of a position never change."""
        if len(self._rotation) < num_positions:
            size = 1 << (num_positions - 1).bit_length()
            angles = torch.outer(torch.arange(size, dtype=torch.float32), self._frequencies)
            rotation = torch.complex(angles.cos() * self._length, angles.sin() * self._length)
            self._rotation = rotation.to(device=self._device, dtype=self._dtype)
        return self._rotation


def apply_rope_(heads_NHd: Tensor, rotation_Nc: Tensor) -> Tensor:
    """Rotate every head of N tokens in place.

    Args:
        heads_NHd: [N, heads, head_dim]; half precision is rotated in float32.
        rotation_Nc: complex [N, head_dim / 2], the table's rows at the tokens' positions.
    """
    is_half = heads_NHd.dtype in (torch.bfloat16, torch.float16)
    wide_NHd = heads_NHd.float() if is_half else heads_NHd
    torch.view_as_complex(wide_NHd.unflatten(-1, (-1, 2))).mul_(rotation_Nc.unsqueeze(1))
    return heads_NHd.copy_(wide_NHd) if is_half else heads_NHd


def pairs_to_neighbours(rows: Tensor, head_dim: int) -> Tensor:
    """Hugging Face's order of a q or k projection's rows (or a norm's entries) -> ours; a copy."""
    pairs: Tensor = rows.unflatten(0, (-1, 2, head_dim // 2))
    return pairs.transpose(1, 2).reshape(rows.shape)


def pairs_to_halves(rows: Tensor, head_dim: int) -> Tensor:
    """The inverse of `pairs_to_neighbours`; a copy."""
    pairs: Tensor = rows.unflatten(0, (-1, head_dim // 2, 2))
    return pairs.transpose(1, 2).reshape(rows.shape)


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling = None) -> Tensor:
    """float32 [head_dim / 2] angles per position, scaling included."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (theta**exponents)
    match scaling:
        case None | DynamicRope():
            return frequencies
        case LinearRope():
            return frequencies / scaling.factor
        case Llama3Rope():
            return _llama3(frequencies, scaling)
        case YarnRope():
            return _yarn(frequencies, theta, scaling)
        case LongRope():
            return 1.0 / (torch.tensor(scaling.short_factor, dtype=torch.float32) * theta**exponents)


def rotation_length(scaling: RopeScaling) -> float:
    """What rotated queries and keys are multiplied by."""
    return scaling.attention_factor if isinstance(scaling, YarnRope | LongRope) else 1.0


def _llama3(frequencies: Tensor, scaling: Llama3Rope) -> Tensor:
    """Llama 3.1: wavelengths above `original / low` are stretched, below `original / high` kept, blended between."""
    original = scaling.original_max_position_embeddings
    wavelengths = 2 * math.pi / frequencies
    blend = (original / wavelengths - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blended = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    stretched = torch.where(wavelengths > original / scaling.low_freq_factor, frequencies / scaling.factor, blended)
    return torch.where(wavelengths < original / scaling.high_freq_factor, frequencies, stretched)


def _yarn(frequencies: Tensor, theta: float, scaling: YarnRope) -> Tensor:
    """A pair that turns `r` times in the original context is number `d log(original / (2 pi r)) / (2 log theta)`."""
    num_pairs = len(frequencies)

    def pair(rotations: float) -> float:
        turns = scaling.original_max_position_embeddings / (2 * math.pi * rotations)
        return num_pairs * math.log(turns) / math.log(theta)

    first, last = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * num_pairs - 1)
    ramp = (torch.arange(num_pairs, dtype=torch.float32) - first) / (last - first if last != first else 0.001)
    stretched = ramp.clamp(0, 1)
    return frequencies / scaling.factor * stretched + frequencies * (1 - stretched)
