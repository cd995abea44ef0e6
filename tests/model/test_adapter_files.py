"""Adapters as peft's files: what is written is read, what is not supported or hostile is refused with words."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from farflung.errors import PeerFault, UserError
from farflung.model.adapter_files import (
    CONFIG,
    MAX_CONFIG_BYTES,
    PREFIX,
    WEIGHTS,
    Adapter,
    config_bytes,
    load_adapter_folder,
    read_adapter,
    read_spec,
    save_adapter_folder,
    weights_bytes,
)
from farflung.model.config import ModelConfig
from farflung.model.lora import TARGETS, LoraSpec, adapter_shapes

MODEL = ModelConfig(
    vocab_size=8, hidden_size=8, intermediate_size=12, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4
)
SPEC = LoraSpec(rank=2, alpha=4.0, targets=("q_proj", "down_proj"))
PLAIN = json.loads(config_bytes(SPEC))
"""What peft 0.21 writes beside this is null, false, empty or without effect."""
PEFT_SAYS = PLAIN | {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "auto_mapping": None,
    "corda_config": None,
    "ensure_weight_tying": False,
    "exclude_modules": None,
    "init_lora_weights": True,
    "layer_replication": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "loftq_config": {},
    "lora_bias": False,
    "lora_dropout": 0.05,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "rank_pattern": {},
    "target_modules": ["down_proj", "q_proj"],
    "trainable_token_indices": None,
    "use_dora": False,
    "use_qalora": False,
}


def state(spec: LoraSpec = SPEC) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator).bfloat16() for name, shape in adapter_shapes(MODEL, spec).items()
    }


def folder(path: Path, config: dict[str, Any] | bytes = PLAIN, weights: bytes | None = None) -> Path:
    path.mkdir(exist_ok=True)
    (path / CONFIG).write_bytes(config if isinstance(config, bytes) else json.dumps(config).encode())
    (path / WEIGHTS).write_bytes(weights_bytes(state()) if weights is None else weights)
    return path


@pytest.mark.parametrize("is_stabilised", [False, True])
def test_what_is_written_is_read(tmp_path: Path, is_stabilised: bool) -> None:
    spec = LoraSpec(rank=3, alpha=1.5, targets=("v_proj", "up_proj"), is_rank_stabilised=is_stabilised)
    save_adapter_folder(tmp_path / "a", Adapter(spec=spec, state=state(spec)), base_name="some/model")
    found = load_adapter_folder(tmp_path / "a", MODEL)
    assert found.spec == spec
    assert found.state.keys() == state(spec).keys()
    assert all(torch.equal(found.state[name], tensor) for name, tensor in state(spec).items())
    assert json.loads((tmp_path / "a" / CONFIG).read_bytes())["base_model_name_or_path"] == "some/model"


def test_an_adapter_is_replaced_and_something_else_is_not(tmp_path: Path) -> None:
    place = folder(tmp_path / "a")
    save_adapter_folder(place, Adapter(spec=SPEC, state={name: tensor * 2 for name, tensor in state().items()}))
    assert torch.equal(load_adapter_folder(place, MODEL).state[next(iter(state()))], next(iter(state().values())) * 2)
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="is not the folder of an adapter"):
        save_adapter_folder(tmp_path / "other", Adapter(spec=SPEC, state=state()))


def test_what_peft_writes_is_read() -> None:
    assert read_spec(PEFT_SAYS) == SPEC
    assert read_spec(PEFT_SAYS | {"target_modules": "all-linear"}).targets == TARGETS
    one_by_one = ["model.layers.1.self_attn.q_proj", "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"]
    assert read_spec(PEFT_SAYS | {"target_modules": one_by_one}) == SPEC


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"peft_type": None}, "peft_type is 'None'"),
        ({"use_dora": True}, "use_dora is True .* not supported"),
        ({"bias": "all"}, "bias is all .* not supported"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is .* not supported"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern is .* not supported"),
        ({"alpha_pattern": {"q_proj": 4}}, "alpha_pattern is .* not supported"),
        ({"layers_to_transform": [0]}, "layers_to_transform is .* not supported"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is True .* not supported"),
        ({"lora_bias": True}, "lora_bias is True .* not supported"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices is .* not supported"),
        ({"something_of_tomorrow": 1}, "something_of_tomorrow is 1 .* not supported"),
        ({"exclude_modules": ["q_proj"]}, "exclude_modules is .* not supported"),
        ({"auto_mapping": None, "init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"init_lora_weights": 1}, "init_lora_weights is '1'"),
        ({"target_modules": ["q_proj", "lm_head"]}, "target_modules has 'lm_head'"),
        ({"target_modules": ["model.layers.0.mlp.experts.up_proj"]}, "target_modules has 'model.layers.0.mlp.experts"),
        ({"target_modules": ".*_proj"}, "patterns are not supported"),
        ({"target_modules": []}, "it must be a list of names"),
        ({"target_modules": None}, "it must be a list of names"),
        ({"target_modules": [["q_proj"]]}, "target_modules has"),
        ({"r": 0}, "r is 0"),
        ({"r": True}, "r is True"),
        ({"r": 2.0}, "r is 2.0"),
        ({"r": 10**9}, "r is 1000000000"),
        ({"lora_alpha": 0}, "lora_alpha is 0"),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
        ({"lora_alpha": "32"}, "lora_alpha is 32"),
        ({"use_rslora": "yes"}, "use_rslora is yes"),
    ],
)
def test_what_is_not_supported_is_refused_with_words(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load_adapter_folder(folder(tmp_path / "a", PEFT_SAYS | change), MODEL)


def _without_first(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(list(tensors.items())[1:])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda: weights_bytes(_without_first(state())), "q_proj.lora_A.weight is missing"),
        (lambda: weights_bytes(state() | {"model.norm.weight": torch.zeros(8)}), "model.norm.weight is unexpected"),
        (lambda: weights_bytes(state(LoraSpec(rank=3, alpha=4.0, targets=SPEC.targets))), r"has shape \(3, 8\), not"),
        (lambda: weights_bytes({name: tensor * float("nan") for name, tensor in state().items()}), "not finite"),
        (lambda: b"\x80\x04 no safetensors", "cannot be read"),
        (lambda: (1 << 40).to_bytes(8, "little") + b"{}", "cannot be read"),
        (lambda: bytes(20 << 20), r"an adapter of rank 2 has at most"),
        (
            lambda: safetensors.torch.save({PREFIX + name: tensor.to(torch.int8) for name, tensor in state().items()}),
            "holds torch.int8",
        ),
    ],
)
def test_weights_that_are_not_this_adapters_are_refused(weights: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load_adapter_folder(folder(tmp_path / "a", weights=weights()), MODEL)


def test_a_pickle_is_never_opened_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"has no {CONFIG}"):
        load_adapter_folder(tmp_path, MODEL)
    place = folder(tmp_path / "a")
    (place / WEIGHTS).unlink()
    with pytest.raises(UserError, match=f"has no {WEIGHTS}"):
        load_adapter_folder(place, MODEL)
    (place / "adapter_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(UserError, match="is not opened"):
        load_adapter_folder(place, MODEL)


def test_a_config_that_is_huge_or_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="more than"):
        load_adapter_folder(folder(tmp_path / "a", b" " * (MAX_CONFIG_BYTES + 1)), MODEL)
    for data in (b" " * (MAX_CONFIG_BYTES + 1), b"[]", b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(PeerFault, match="malformed"):
            read_adapter(MODEL, data, weights_bytes(state()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(key=st.sampled_from(sorted(PEFT_SAYS)) | st.text(max_size=8), value=JSON)
def test_any_change_of_a_config_is_read_or_refused(key: str, value: Any) -> None:
    try:
        spec = read_spec(PEFT_SAYS | {key: value})
    except UserError:
        return
    assert spec.rank >= 1
    assert spec.scale > 0


@given(st.binary(max_size=200))
def test_bytes_of_anybody_are_refused(data: bytes) -> None:
    with pytest.raises((PeerFault, UserError)):
        read_adapter(MODEL, config_bytes(SPEC), data)
    with pytest.raises((PeerFault, UserError)):
        read_adapter(MODEL, data, weights_bytes(state()))
