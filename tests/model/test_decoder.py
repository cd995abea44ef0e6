"""The decoder against itself: packed, one by one, and token by token."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from farflung.errors import OurFault
from farflung.model.config import LocalAttention, ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.layout import SequenceLayout
from farflung.model.weights import load_hf_state

_LENGTHS = [5, 1, 19, 6, 7, 30]


def _decoder(dtype: torch.dtype = torch.float32, **changes: Any) -> Decoder:
    sizes: dict[str, Any] = {
        "vocab_size": 40,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
    }
    config = ModelConfig(**{**sizes, **changes})
    decoder = Decoder(config, dtype=dtype)
    load_hf_state(decoder, random_state(config, seed=3, std=0.3))
    return decoder


def _tokens(num_tokens: int) -> Tensor:
    return torch.randint(0, 40, (num_tokens,), generator=torch.Generator().manual_seed(1))


def _one_by_one(decoder: Decoder, tokens: Tensor, lengths: list[int]) -> Tensor:
    parts = tokens.split(lengths)
    return torch.cat([decoder(part, SequenceLayout.from_lengths([len(part)])) for part in parts])


def _gradients(decoder: Decoder, hidden: Tensor) -> list[Tensor]:
    weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2)).to(hidden.dtype)
    used = [parameter for parameter in decoder.parameters() if parameter is not decoder.lm_head]
    return list(torch.autograd.grad((hidden * weights).sum(), used))


def test_packed_documents_equal_single_ones() -> None:
    decoder, tokens = _decoder(), _tokens(sum(_LENGTHS))
    packed = decoder(tokens, SequenceLayout.from_lengths(_LENGTHS))
    single = _one_by_one(decoder, tokens, _LENGTHS)
    torch.testing.assert_close(packed, single, rtol=0, atol=5e-6)
    for ours, theirs in zip(_gradients(decoder, packed), _gradients(decoder, single), strict=True):
        assert (ours - theirs).norm() <= 1e-6 * theirs.norm()


def test_packed_gradients_equal_single_ones_in_float64() -> None:
    decoder, tokens = _decoder(torch.float64), _tokens(sum(_LENGTHS))
    packed = _gradients(decoder, decoder(tokens, SequenceLayout.from_lengths(_LENGTHS)))
    single = _gradients(decoder, _one_by_one(decoder, tokens, _LENGTHS))
    for ours, theirs in zip(packed, single, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_a_document_does_not_see_its_neighbours_or_its_future() -> None:
    decoder, tokens = _decoder(), _tokens(12)
    layout = SequenceLayout.from_lengths([4, 8])
    before = decoder(tokens, layout)
    changed = tokens.clone()
    changed[[1, 9]] = (changed[[1, 9]] + 1) % 40
    moved = (decoder(changed, layout) - before).abs().amax(-1) > 1e-6
    assert moved.tolist() == [False, True, True, True] + [False] * 5 + [True] * 3


def test_the_order_of_documents_does_not_matter() -> None:
    decoder, tokens = _decoder(), _tokens(sum(_LENGTHS))
    forward = decoder(tokens, SequenceLayout.from_lengths(_LENGTHS)).split(_LENGTHS)
    backwards = torch.cat(tokens.split(_LENGTHS)[::-1])
    reverse = decoder(backwards, SequenceLayout.from_lengths(_LENGTHS[::-1])).split(_LENGTHS[::-1])
    torch.testing.assert_close(torch.cat(reverse[::-1]), torch.cat(forward), rtol=0, atol=2e-6)


def test_token_by_token_with_a_cache_gives_the_same_states() -> None:
    decoder, tokens = _decoder(), _tokens(9)
    with torch.no_grad():
        whole = decoder(tokens, SequenceLayout.from_lengths([9]))
        caches: list[list[Tensor]] = [[] for _ in decoder.layers]
        for position in range(9):
            hidden = decoder.embed(tokens[position : position + 1])
            rotations = decoder.rotations(torch.tensor([position]), position + 1)
            for layer, cache, rotation in zip(decoder.layers, caches, rotations, strict=True):
                cache.append(layer.heads(hidden, rotation))
                _, key, value = layer.split_heads(torch.cat(cache).transpose(0, 1), dim=0)
                query, _, _ = layer.split_heads(cache[-1].transpose(0, 1), dim=0)
                attended = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
                hidden = layer.mlp(layer.attention_output(hidden, attended.transpose(0, 1)))
            torch.testing.assert_close(decoder.final_norm(hidden)[0], whole[position], rtol=0, atol=5e-6)


def test_two_passes_are_bit_equal() -> None:
    decoder, tokens = _decoder(), _tokens(12)
    layout = SequenceLayout.from_lengths([4, 8])
    with torch.no_grad():
        without = decoder(tokens, layout)
    assert torch.equal(decoder(tokens, layout), without)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": True, "attention_output_bias": True},
        {"qk_norm": True},
        {"tie_word_embeddings": True, "num_kv_heads": 4},
        {
            "activation": "gelu_tanh",
            "norm_offset": 1.0,
            "sandwich_norms": True,
            "embedding_scale": 3.0,
            "attention_scale": 0.2,
            "local_attention": LocalAttention(window=3, rope_theta=100.0, is_local=(True,)),
        },
    ],
)
def test_every_weight_has_the_gradient_of_a_finite_difference(changes: dict[str, Any]) -> None:
    decoder, tokens = _decoder(torch.float64, num_layers=1, **changes), _tokens(7)
    layout = SequenceLayout.from_lengths([3, 4])

    def loss() -> Tensor:
        logits = decoder(tokens, layout) @ decoder.lm_head_weight.T
        return logits.log_softmax(-1)[:, 0].sum()

    loss().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        direction = torch.randn_like(parameter)
        slope = (parameter.grad * direction).sum()
        with torch.no_grad():
            parameter += 1e-6 * direction
            above = loss()
            parameter -= 2e-6 * direction
            below = loss()
            parameter += 1e-6 * direction
        torch.testing.assert_close((above - below) / 2e-6, slope, rtol=1e-5, atol=1e-7, msg=name)


def test_half_precision_on_a_cpu_is_refused() -> None:
    with pytest.raises(OurFault, match="float32"):
        Decoder(_decoder().config, dtype=torch.bfloat16)
