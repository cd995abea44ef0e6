"""Documents end to end against the padded way. The kernel itself needs a GPU; the arithmetic around it does not."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from farflung.model import decoder as decoder_module
from farflung.model.cells import Prefixes
from farflung.model.config import LocalAttention, ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.layout import SequenceLayout
from farflung.model.varlen import can_attend_packed
from farflung.model.weights import load_hf_state

LENGTHS = [5, 1, 9, 0, 7, 12]
PREFIXES = Prefixes(starts_D=np.array([0, 0, 0, 6, 6, 0]), lengths_D=np.array([0, 4, 0, 3, 2, 0]))
"""Documents 1 begins in 0; 3 (without tokens of its own) and 4 begin in 2."""


def a_decoder(device: str = "cpu", dtype: torch.dtype = torch.float32, *, is_local: bool = False) -> Decoder:
    config = ModelConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        local_attention=LocalAttention(window=4, rope_theta=1e4, is_local=(True, False)) if is_local else None,
    )
    decoder = Decoder(config, dtype=dtype, device=device)
    load_hf_state(decoder, random_state(config, seed=3, std=0.2))
    return decoder


def outcome(decoder: Decoder, prefixes: Prefixes | None, *, is_packed: bool) -> tuple[Tensor, list[Tensor]]:
    device = decoder.embed_tokens.device
    lengths = LENGTHS if prefixes is not None else [length + 1 for length in LENGTHS]
    layout = SequenceLayout.from_lengths(lengths, device, prefixes=prefixes, is_packed=is_packed)
    tokens = torch.randint(0, 40, (sum(lengths),), generator=torch.Generator().manual_seed(1)).to(device)
    decoder.zero_grad(set_to_none=True)
    hidden_ND = decoder(tokens, layout)
    weights = torch.linspace(-1, 1, hidden_ND.numel(), device=device).view_as(hidden_ND)
    (hidden_ND.float() * weights).sum().backward()
    gradients = [parameter.grad for parameter in decoder.parameters() if parameter.grad is not None]
    return hidden_ND.detach().float().cpu(), [gradient.float().cpu() for gradient in gradients]


def one_document_at_a_time(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, max_length: int, *, window: int | None, scale: Any
) -> Tensor:
    assert bounds.dtype == torch.int32
    assert max_length == int(bounds.diff().max())
    results = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        length = last - first
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        mask = mask if window is None else mask.triu(1 - window)
        parts = (part[first:last].transpose(0, 1)[None] for part in (query, key, value))
        result = F.scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale, enable_gqa=True)
        results.append(result[0].transpose(0, 1))
    return torch.cat(results)


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("prefixes", [None, PREFIXES])
def test_packed_cells_hold_what_padded_ones_hold(
    monkeypatch: pytest.MonkeyPatch, prefixes: Prefixes | None, is_local: bool
) -> None:
    decoder = a_decoder(is_local=is_local)
    hidden, gradients = outcome(decoder, prefixes, is_packed=False)
    monkeypatch.setattr(decoder_module, "attend_packed", one_document_at_a_time)
    packed_hidden, packed_gradients = outcome(decoder, prefixes, is_packed=True)
    torch.testing.assert_close(packed_hidden, hidden, rtol=1e-5, atol=1e-5)
    for packed, right in zip(packed_gradients, gradients, strict=True):
        torch.testing.assert_close(packed, right, rtol=1e-4, atol=1e-4)


def test_only_half_precision_on_a_gpu_is_packed() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    half, full = torch.bfloat16, torch.float32
    assert [can_attend_packed(*pair) for pair in ((gpu, half), (gpu, full), (cpu, half), (cpu, full))] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("prefixes", [None, PREFIXES])
def test_the_kernel_agrees_with_the_padded_way(prefixes: Prefixes | None, is_local: bool) -> None:
    half = a_decoder("cuda", torch.bfloat16, is_local=is_local)
    hidden, gradients = outcome(half, prefixes, is_packed=True)
    right_hidden, right_gradients = outcome(a_decoder(is_local=is_local), prefixes, is_packed=False)
    torch.testing.assert_close(hidden, right_hidden, rtol=0.05, atol=0.05)
    for gradient, right in zip(gradients, right_gradients, strict=True):
        assert F.cosine_similarity(gradient.flatten(), right.flatten(), dim=0) > 0.99
