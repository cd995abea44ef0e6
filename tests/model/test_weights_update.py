"""The next version of weights, written where they changed: the same as a load of all of it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from farflung.errors import PeerFault, UserError
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.packed import can_pack
from farflung.model.weights import (
    expected_shapes,
    from_safetensors_bytes,
    load_hf_state,
    state_to_hf,
    to_safetensors_bytes,
    views_of_safetensors,
)
from farflung.model.weights_update import Changed, update_hf_state

FAMILIES: list[dict[str, Any]] = [
    {},
    {"tie_word_embeddings": True},
    {"attention_bias": True, "attention_output_bias": True},
    {"qk_norm": True, "sandwich_norms": True},
    {"num_kv_heads": 1},
]


def config_of(**changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 10, "hidden_size": 12, "intermediate_size": 6, "num_layers": 2, "num_heads": 4,
        "num_kv_heads": 2, "head_dim": 4,
    }  # fmt: skip
    return ModelConfig(**{**sizes, **changes})


def state_of(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=dice).bfloat16() for name, shape in expected_shapes(config).items()}


def moved(state: dict[str, Tensor], seed: int, share: float) -> tuple[dict[str, Tensor], Changed]:
    """Some elements of some tensors; the others are not even looked at, so they are spoilt here."""
    dice = np.random.default_rng(seed)
    new, changed = {}, {}
    for name, tensor in state.items():
        kind = dice.choice(["same", "some", "all"])
        flat = tensor.clone().reshape(-1)
        where = np.flatnonzero(dice.random(len(flat)) < share)
        flat[torch.from_numpy(where)] += 1
        if kind == "all":
            changed[name] = None
        elif kind == "some":
            changed[name] = where
        new[name] = flat.reshape(tensor.shape) if kind != "same" else tensor
    return new, changed


@given(st.sampled_from(FAMILIES), st.integers(0, 2**16), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_an_update_is_a_load(family: dict[str, Any], seed: int, share: float) -> None:
    config = config_of(**family)
    old = state_of(config, seed)
    new, changed = moved(old, seed, share)
    updated = Decoder(config)
    load_hf_state(updated, old)
    update_hf_state(updated, new, changed)
    assert all(torch.equal(tensor.bfloat16(), new[name]) for name, tensor in state_to_hf(updated).items())


def test_only_what_changed_is_touched() -> None:
    config = config_of()
    decoder = Decoder(config)
    load_hf_state(decoder, state_of(config, 0))
    before = {name: tensor.clone() for name, tensor in decoder.named_parameters()}
    other = state_of(config, 1)
    update_hf_state(decoder, other, {"model.layers.1.self_attn.k_proj.weight": np.array([5])})
    touched = {
        name: int((parameter != before[name]).sum())
        for name, parameter in decoder.named_parameters()
        if not torch.equal(parameter, before[name])
    }
    assert touched == {"layers.1.qkv_proj.weight": 1}


@pytest.mark.skipif(not can_pack(torch.zeros(512, 512)), reason="nothing is packed on this processor")
@pytest.mark.parametrize("is_tied", [False, True])
def test_packed_matrices_follow(is_tied: bool) -> None:
    sizes = {"vocab_size": 600, "hidden_size": 512, "intermediate_size": 512, "head_dim": 128, "num_layers": 1}
    config = config_of(tie_word_embeddings=is_tied, **sizes)
    old = state_of(config, 0)
    new, changed = moved(old, 3, 0.01)
    assert {"some", "same"} <= {"same" if name not in changed else "some" for name in old}
    updated, loaded = Decoder(config).requires_grad_(False), Decoder(config).requires_grad_(False)
    for decoder in (updated, loaded):
        decoder.packs_weights = True
    load_hf_state(updated, old)
    load_hf_state(loaded, new)
    update_hf_state(updated, new, changed)
    rows = torch.randn(3, 512)
    for mine, theirs in zip(updated.layers[0].projections, loaded.layers[0].projections, strict=True):
        assert mine.is_packed
        assert torch.equal(mine(rows[:, : mine.weight.shape[1]]), theirs(rows[:, : theirs.weight.shape[1]]))
    assert torch.equal(updated.lm_head_weight.to_dense(), loaded.lm_head_weight.to_dense())
    assert torch.equal(updated.embed_tokens, loaded.embed_tokens)


def test_weights_of_another_model_change_nothing() -> None:
    config = config_of()
    decoder = Decoder(config)
    load_hf_state(decoder, state_of(config, 0))
    before = state_to_hf(decoder)
    with pytest.raises(UserError, match="do not belong together"):
        update_hf_state(decoder, state_of(config_of(vocab_size=11), 1), dict.fromkeys(before))
    assert all(torch.equal(tensor, before[name]) for name, tensor in state_to_hf(decoder).items())


def test_views_of_a_file_are_its_tensors() -> None:
    state = state_of(config_of(), 0) | {"empty": torch.zeros(0, 3, dtype=torch.bfloat16)}
    data = to_safetensors_bytes(state)
    views = views_of_safetensors(bytearray(data))
    assert views.keys() == state.keys()
    loaded = from_safetensors_bytes(data, len(data))
    assert all(torch.equal(view, loaded[name]) and view.dtype == loaded[name].dtype for name, view in views.items())


def test_views_of_what_no_weight_is_are_refused() -> None:
    header = b'{"x":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}'
    with pytest.raises(PeerFault, match="I64"):
        views_of_safetensors(bytearray(len(header).to_bytes(8, "little") + header + bytes(8)))
