"""Small models from nothing: a configuration for a tokenizer, and weights from a seed."""

from typing import Protocol

import torch
from torch import Tensor

from farflung.model.config import ModelConfig
from farflung.model.weights import expected_shapes

INIT_STD = 0.02
"""Standard deviation of fresh weights, as in GPT-2 and Hugging Face's `initializer_range`."""


class SpecialIds(Protocol):
    """What a configuration needs to know of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...
    @property
    def pad_token_id(self) -> int | None: ...
    @property
    def bos_token_id(self) -> int | None: ...


def tiny_config(
    tokenizer: SpecialIds,
    *,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    num_kv_heads: int | None = None,
    intermediate_size: int = 192,
    max_position_embeddings: int = 512,
    tie_word_embeddings: bool = False,
) -> ModelConfig:
    """A decoder of about 0.1 million parameters, whose vocabulary is the tokenizer's."""
    return ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        head_dim=hidden_size // num_heads,
        max_position_embeddings=max_position_embeddings,
        tie_word_embeddings=tie_word_embeddings,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_ids=tokenizer.eos_token_ids,
        pad_token_id=tokenizer.pad_token_id,
    )


def random_state(config: ModelConfig, seed: int, std: float = INIT_STD) -> dict[str, Tensor]:
    """float32 weights under Hugging Face names, a function of (config, seed) alone: N(0, std^2), norms 1, biases 0."""
    generator = torch.Generator().manual_seed(seed)
    return {name: _fresh(name, shape, generator, std) for name, shape in expected_shapes(config).items()}


def _fresh(name: str, shape: tuple[int, ...], generator: torch.Generator, std: float) -> Tensor:
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(".bias"):
        return torch.zeros(shape)
    return torch.randn(shape, generator=generator) * std
