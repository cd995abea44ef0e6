"""Rotary position embedding: pair (i, i + d/2) of a head turns by `position * theta^(-2i/d)` (Hugging Face's halves).

One table per decoder, so that a position has the same bits in training, in decoding and in verification.
"""

import math

import torch
from torch import Tensor

from farflung.model.config import Llama3Rope, ModelConfig


class RopeTable:
    """cos and sin of every position, grown on demand."""

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, device: torch.device | str) -> None:
        self._frequencies = inverse_frequencies(config)
        self._dtype = dtype
        self._device = device
        self._cos = self._sin = torch.empty(0, 0)

    def upto(self, num_positions: int) -> tuple[Tensor, Tensor]:
        """(cos, sin), each [at least num_positions, head_dim / 2]. The first rows never change."""
        if len(self._cos) < num_positions:
            size = 1 << (num_positions - 1).bit_length()
            angles = torch.outer(torch.arange(size, dtype=torch.float32), self._frequencies)
            self._cos = angles.cos().to(device=self._device, dtype=self._dtype)
            self._sin = angles.sin().to(device=self._device, dtype=self._dtype)
        return self._cos, self._sin


def apply_rope(heads_NHd: Tensor, cos_Nd: Tensor, sin_Nd: Tensor) -> Tensor:
    """Rotate every head of N tokens.

    Args:
        heads_NHd: [N, heads, head_dim].
        cos_Nd: [N, head_dim / 2], the table's rows at the tokens' positions.
        sin_Nd: likewise.
    """
    first, second = heads_NHd.chunk(2, dim=-1)
    cos, sin = cos_Nd.unsqueeze(1), sin_Nd.unsqueeze(1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """float32 [head_dim / 2] angles per position, scaling included."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if isinstance(scaling, Llama3Rope):
        return _llama3(frequencies, scaling)
    return frequencies / scaling.factor


def _llama3(frequencies: Tensor, scaling: Llama3Rope) -> Tensor:
    """Llama 3.1: wavelengths above `original / low` are stretched, below `original / high` kept, blended between."""
    original = scaling.original_max_position_embeddings
    wavelengths = 2 * math.pi / frequencies
    blend = (original / wavelengths - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blended = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    stretched = torch.where(wavelengths > original / scaling.low_freq_factor, frequencies / scaling.factor, blended)
    return torch.where(wavelengths < original / scaling.high_freq_factor, frequencies, stretched)
