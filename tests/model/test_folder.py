"""Models as Hugging Face folders."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from farflung.errors import OurFault, UserError
from farflung.model.characters import character_tokenizer
from farflung.model.config import ModelConfig
from farflung.model.description import read_json
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import load_folder, save_folder

_TOKENIZER = character_tokenizer("0123>")
_CONFIG = tiny_config(_TOKENIZER, hidden_size=8, num_heads=2, intermediate_size=8, num_layers=2)


def _save(path: Path, seed: int = 0, dtype: torch.dtype = torch.bfloat16, config: ModelConfig = _CONFIG) -> None:
    save_folder(path, config, random_state(config, seed), _TOKENIZER.files, dtype=dtype)


def _shard(path: Path) -> None:
    """Turn the folder's weights into two shards with an index."""
    state = load_folder(path).state
    names = sorted(state)
    shards = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for file, members in shards.items():
        save_file({name: state[name] for name in members}, path / file)
    weight_map = {name: file for file, members in shards.items() for name in members}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (path / "model.safetensors").unlink()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_model_comes_back_whole(tmp_path: Path, dtype: torch.dtype) -> None:
    _save(tmp_path / "m", dtype=dtype)
    loaded = load_folder(tmp_path / "m")
    state = random_state(_CONFIG, 0)
    assert loaded.config == _CONFIG
    assert loaded.tokenizer_files == _TOKENIZER.files
    assert list(loaded.state) == list(state)
    assert all(torch.equal(loaded.state[name], state[name].to(dtype)) for name in state)
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_saving_again_replaces_the_model(tmp_path: Path) -> None:
    _save(tmp_path / "m", seed=0)
    (tmp_path / "m" / "leftover.txt").write_text("of the old model")
    _save(tmp_path / "m", seed=1)
    name = "lm_head.weight"
    assert torch.equal(load_folder(tmp_path / "m").state[name], random_state(_CONFIG, 1)[name].bfloat16())
    assert not (tmp_path / "m" / "leftover.txt").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_a_failed_replacement_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _save(tmp_path / "m")
    rename = Path.rename

    def fail_to_place_the_new_one(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_to_place_the_new_one)
    with pytest.raises(OurFault, match="No space left on device"):
        _save(tmp_path / "m", seed=1)
    name = "lm_head.weight"
    assert torch.equal(load_folder(tmp_path / "m").state[name], random_state(_CONFIG, 0)[name].bfloat16())
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_a_folder_that_is_no_model_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not a model folder"):
        _save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_weights_that_do_not_fit_the_config_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="do not belong together"):
        save_folder(tmp_path / "m", _CONFIG, {}, _TOKENIZER.files)
    assert list(tmp_path.iterdir()) == []


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    _save(tmp_path / "m")
    whole = load_folder(tmp_path / "m").state
    _shard(tmp_path / "m")
    sharded = load_folder(tmp_path / "m").state
    assert all(torch.equal(sharded[name], whole[name]) for name in whole)


def test_computed_tables_and_tied_heads_of_old_checkpoints_are_left_out(tmp_path: Path) -> None:
    config = ModelConfig.from_hf(_CONFIG.to_hf() | {"tie_word_embeddings": True})
    _save(tmp_path / "m", config=config)
    state = load_folder(tmp_path / "m").state
    extra = {
        "lm_head.weight": state["model.embed_tokens.weight"].clone(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2),
    }
    save_file(state | extra, tmp_path / "m" / "model.safetensors")
    assert load_folder(tmp_path / "m").state.keys() == state.keys()


@pytest.mark.parametrize(
    ("remove", "words"),
    [
        ("config.json", "has no config.json: give the folder of a Hugging Face model"),
        ("tokenizer.json", "has no tokenizer.json: save the model's tokenizer"),
        ("model.safetensors", "has no model.safetensors: give the folder"),
    ],
)
def test_a_missing_file_is_named_with_the_remedy(tmp_path: Path, remove: str, words: str) -> None:
    _save(tmp_path / "m")
    (tmp_path / "m" / remove).unlink()
    with pytest.raises(UserError) as caught:
        load_folder(tmp_path / "m")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("config.json", b"{", "is not JSON"),
        ("config.json", b"[]", "holds a list"),
        ("model.safetensors", b"garbage!", "is not a safetensors file"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    _save(tmp_path / "m")
    (tmp_path / "m" / name).write_bytes(data)
    with pytest.raises(UserError, match=words):
        load_folder(tmp_path / "m")


def test_pickled_weights_are_not_opened(tmp_path: Path) -> None:
    _save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "pytorch_model.bin")
    with pytest.raises(UserError, match="pickles"):
        load_folder(tmp_path / "m")


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({}, "has no weight_map"),
        ({"weight_map": {"w": "../elsewhere.safetensors"}}, "only safetensors beside it"),
        ({"weight_map": {"w": "pytorch_model.bin"}}, "only safetensors beside it"),
        ({"weight_map": {"w": "absent.safetensors"}}, "lacks absent.safetensors"),
    ],
)
def test_an_index_that_points_elsewhere_is_refused(tmp_path: Path, index: dict[str, object], words: str) -> None:
    _save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=words):
        load_folder(tmp_path / "m")


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        load_folder(tmp_path / "nowhere")


def test_a_pipe_or_a_device_in_a_folder_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UserError, match="regular file"):
        read_json(tmp_path / "config.json")
    (tmp_path / "tokenizer.json").symlink_to("/dev/zero")
    with pytest.raises(UserError, match="regular file"):
        read_json(tmp_path / "tokenizer.json")
