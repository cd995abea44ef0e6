"""Adapters: unmerged as merged, gradients of the matrices alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from farflung.errors import UserError
from farflung.model.adapted import attach, detach, load_adapter, set_merged, take_gradient
from farflung.model.config import Llama3Rope, LocalAttention, ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.layout import SequenceLayout
from farflung.model.lora import A, B, LoraSpec, adapter_shapes, check_adapter, fresh_adapter, merge, split
from farflung.model.weights import load_hf_state

_LENGTHS = [3, 40, 11]
_SIZES: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
}
FAMILIES = {
    "llama": ModelConfig(
        **_SIZES,
        rope_scaling=Llama3Rope(
            factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
        ),
    ),
    "qwen2": ModelConfig(**_SIZES, attention_bias=True, tie_word_embeddings=True),
    "qwen3": ModelConfig(**{**_SIZES, "head_dim": 16}, qk_norm=True),
    "gemma3": ModelConfig(
        **{**_SIZES, "num_layers": 6},
        tie_word_embeddings=True,
        qk_norm=True,
        sandwich_norms=True,
        norm_offset=1.0,
        activation="gelu_tanh",
        local_attention=LocalAttention(window=8, rope_theta=1e4, is_local=(True,) * 5 + (False,)),
    ),
}
SPEC = LoraSpec(rank=3, alpha=5.0)


def filled(config: ModelConfig, spec: LoraSpec = SPEC, seed: int = 7) -> dict[str, Tensor]:
    """An adapter that changes much."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.1 * torch.randn(shape, generator=generator) for name, shape in adapter_shapes(config, spec).items()}


def tokens() -> Tensor:
    return torch.randint(0, 48, (sum(_LENGTHS),), generator=torch.Generator().manual_seed(0))


def decoder_of(config: ModelConfig, state: dict[str, Tensor]) -> Decoder:
    decoder = Decoder(config)
    load_hf_state(decoder, state)
    return decoder


def adapted(config: ModelConfig, adapter: dict[str, Tensor], spec: LoraSpec = SPEC, *, learns: bool = False) -> Decoder:
    decoder = decoder_of(config, random_state(config, 4, 0.2))
    attach(decoder, spec, requires_grad=learns)
    load_adapter(decoder, adapter, spec)
    return decoder


def logits(decoder: Decoder) -> Tensor:
    return decoder(tokens(), SequenceLayout.from_lengths(_LENGTHS)) @ decoder.lm_head_weight.T


@pytest.mark.parametrize("targets", [SPEC.targets, ("q_proj", "v_proj"), ("k_proj",), ("down_proj", "o_proj")])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_apart_gives_the_logits_of_the_merged_model(family: str, targets: tuple[str, ...]) -> None:
    config, spec = FAMILIES[family], LoraSpec(rank=3, alpha=5.0, targets=targets)
    adapter = filled(config, spec)
    merged = decoder_of(config, merge(random_state(config, 4, 0.2), adapter, spec))
    with torch.no_grad():
        apart, whole = logits(adapted(config, adapter, spec)), logits(merged)
        base = logits(decoder_of(config, random_state(config, 4, 0.2)))
    torch.testing.assert_close(apart, whole, rtol=0, atol=1e-5)
    assert float((base - whole).abs().max()) > 0.01
