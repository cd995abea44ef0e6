"""Weights from a seed."""

import torch
from torch import Tensor

from farflung.model.config import ModelConfig
from farflung.model.presets import tiny_config
from farflung.model.weights import expected_shapes

__all__ = ["random_state", "tiny_config"]

INIT_STD = 0.02
"""Standard deviation of fresh weights, as in GPT-2 and Hugging Face's `initializer_range`."""


def random_state(config: ModelConfig, seed: int, std: float = INIT_STD) -> dict[str, Tensor]:
    """float32 weights under Hugging Face names: N(0, std^2), norms that multiply by 1, biases 0.

    A function of the arguments alone.
    """
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _fresh(name, shape, generator, std, config.norm_offset) for name, shape in expected_shapes(config).items()
    }


def _fresh(name: str, shape: tuple[int, ...], generator: torch.Generator, std: float, norm_offset: float) -> Tensor:
    if name.endswith("norm.weight"):
        return torch.full(shape, 1.0 - norm_offset)
    if name.endswith(".bias"):
        return torch.zeros(shape)
    return torch.randn(shape, generator=generator) * std
