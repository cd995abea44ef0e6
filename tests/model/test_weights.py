"""Weights by Hugging Face name, and safetensors bytes from anybody."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from farflung.errors import PeerFault, UserError
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.weights import (
    MAX_HEADER_BYTES,
    check_state,
    expected_shapes,
    from_safetensors_bytes,
    load_hf_state,
    publishable_state,
    state_to_hf,
    to_safetensors_bytes,
)

_EMBEDDING = "model.embed_tokens.weight"
_LIMIT = 1 << 20


def _config(**changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 10,
        "hidden_size": 12,
        "intermediate_size": 6,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 4,
    }
    return ModelConfig(**{**sizes, **changes})


def _file(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"attention_bias": True, "attention_output_bias": True},
        {"attention_bias": True},
        {"qk_norm": True},
    ],
)
def test_a_state_goes_in_and_out_unchanged(changes: dict[str, Any]) -> None:
    config = _config(**changes)
    state = {name: torch.randn(shape) for name, shape in expected_shapes(config).items()}
    decoder = Decoder(config)
    load_hf_state(decoder, state)
    back = state_to_hf(decoder)
    assert list(back) == list(state)
    assert all(torch.equal(back[name], state[name]) for name in state)
    assert sum(tensor.numel() for tensor in back.values()) == sum(p.numel() for p in decoder.parameters())


def test_a_state_that_came_out_is_a_copy() -> None:
    decoder = Decoder(_config())
    for tensor in state_to_hf(decoder).values():
        tensor.fill_(7.0)
    assert not any((parameter == 7.0).any() for parameter in decoder.parameters())


def test_a_tied_model_takes_a_head_that_equals_its_embedding_only() -> None:
    config = _config(tie_word_embeddings=True)
    state = random_state(config, 0)
    check_state(config, state | {"lm_head.weight": state[_EMBEDDING].clone()})
    with pytest.raises(UserError, match=r"unexpected: lm_head\.weight"):
        check_state(config, state | {"lm_head.weight": state[_EMBEDDING] + 1})


def test_every_misfit_is_named_and_nothing_is_loaded() -> None:
    config = _config()
    state = random_state(config, 0)
    del state["model.norm.weight"]
    state["model.layers.0.mlp.up_proj.weight"] = torch.zeros(6, 11)
    state["model.layers.7.mlp.up_proj.weight"] = torch.zeros(6, 12)
    decoder = Decoder(config)
    before = state_to_hf(decoder)
    with pytest.raises(UserError) as caught:
        load_hf_state(decoder, state)
    assert "missing: model.norm.weight" in str(caught.value)
    assert "unexpected: model.layers.7.mlp.up_proj.weight" in str(caught.value)
    assert "up_proj.weight has shape (6, 11) where config.json asks for (6, 12)" in str(caught.value)
    assert all(torch.equal(before[name], tensor) for name, tensor in state_to_hf(decoder).items())


def test_a_long_list_of_misfits_is_shortened() -> None:
    with pytest.raises(UserError, match="and 18 more"):
        check_state(_config(), {})


def test_published_weights_are_the_masters_rounded_to_nearest_even() -> None:
    # bf16 keeps 8 significant bits: 1 + 2^-8 lies midway between 1 and 1 + 2^-7, 1 + 3 * 2^-8 between odd and even.
    masters = {"w": torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -0.3])}
    published = publishable_state(masters)
    assert published["w"].dtype == torch.bfloat16
    assert published["w"][:2].tolist() == [1.0, 1 + 2**-6]


def test_published_weights_do_not_follow_the_masters_afterwards() -> None:
    masters = {"w": torch.ones(2, dtype=torch.bfloat16)}
    published = publishable_state(masters)
    masters["w"].zero_()
    assert published["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_safetensors_bytes_round_trip_and_do_not_depend_on_order(dtype: torch.dtype) -> None:
    state = random_state(_config(), 0)
    data = to_safetensors_bytes(state, dtype)
    assert data == to_safetensors_bytes(dict(reversed(state.items())), dtype)
    back = from_safetensors_bytes(data, _LIMIT)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name].to(dtype)) for name in state)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\x00\x00",
        _file(b"{}")[:-1],
        (1 << 63).to_bytes(8, "little") + b"{}",
        (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b" " * (MAX_HEADER_BYTES + 1),
        _file(b"[1]"),
        _file(b"[" * 100_000),
        _file(b"\xff\xfe"),
        _file(b'{"w": NaN}'),
        _file({"w": 3}),
        _file({"w": _entry(dtype="I64", shape=(1,))}, bytes(8)),
        _file({"w": _entry(dtype="F8_E4M3", shape=(8,))}, bytes(8)),
        _file({"w": _entry(dtype="F8_E8M0", shape=(8,))}, bytes(8)),
        _file({"w": _entry(dtype="F4", shape=(16,))}, bytes(8)),
        _file({"w": _entry(dtype="C64", shape=(1,))}, bytes(8)),
        _file({"w": _entry(dtype="U16", shape=(4,))}, bytes(8)),
        _file({"w": _entry(dtype="F128")}, bytes(8)),
        _file({"w": _entry(dtype=["F32"])}, bytes(8)),  # type: ignore[arg-type]
        _file({"w": _entry(offsets=(0, 9))}, bytes(8)),
        _file({"w": _entry(offsets=(8, 0))}, bytes(8)),
        _file({"w": _entry(shape=(3,))}, bytes(8)),
        _file({"w": _entry(shape=(-2,))}, bytes(8)),
        _file({"w": _entry(shape=(2**62, 2**62))}, bytes(8)),
        _file({"w": _entry()}, bytes(9)),
        _file({"v": _entry(), "w": _entry()}, bytes(8)),
        _file({"__metadata__": {"a": 1}, "w": _entry()}, bytes(8)),
    ],
)
def test_hostile_bytes_are_a_peers_fault(data: bytes) -> None:
    with pytest.raises(PeerFault) as caught:
        from_safetensors_bytes(data, 64 << 20)
    assert caught.value.reason == "malformed_record"


def test_size_is_checked_before_anything_else() -> None:
    with pytest.raises(PeerFault, match="at most 10 allowed"):
        from_safetensors_bytes(bytes(11), 10)


@given(st.data())
def test_a_damaged_file_is_a_peers_fault_or_floats(data: st.DataObject) -> None:
    whole = bytearray(to_safetensors_bytes({"a": torch.ones(2, 3), "b": torch.zeros(0)}, torch.float32))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        state = from_safetensors_bytes(bytes(whole), _LIMIT)
    except PeerFault:
        return
    assert all(isinstance(tensor, Tensor) and tensor.is_floating_point() for tensor in state.values())
