"""`farflung model`: what people see, and what is refused."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from farflung.cli import main
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import load_folder, save_folder
from farflung.model.gguf import MAGIC
from farflung.model.packaged import PACKAGED


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


def test_inspect_says_who_runs_it_and_what_ends_a_completion(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["model", "inspect", str(folder)]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if len(line.split()) > 1)
    assert rows["family"].strip() == "llama"
    assert "the own decoder" in rows["run"]
    assert rows["tied"].strip() == "no"
    assert rows["context"].startswith("512 tokens")
    assert "[1]" in rows["ends"]
    template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    assert rows["template"].split()[1] == hashlib.sha256(template.encode()).hexdigest()[:16]


def test_a_folder_with_two_chat_templates_is_refused_with_the_difference(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert main.main(["model", "convert", str(folder), str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err
    assert "the chat template in tokenizer_config.json is not that in chat_template.jinja" in shown
    assert "-{{ messages[0].content }}!" in shown
    assert not (tmp_path / "out").exists()


def test_a_named_template_is_the_only_one_afterwards(folder: Path, tmp_path: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    (tmp_path / "mine.jinja").write_text("{{ messages[0].content }}?")
    out = tmp_path / "out"
    assert main.main(["model", "convert", str(folder), str(out), "--template", str(tmp_path / "mine.jinja")]) == 0
    assert (out / "chat_template.jinja").read_text() == "{{ messages[0].content }}?"
    assert "chat_template" not in json.loads((out / "tokenizer_config.json").read_text())
    assert main.main(["model", "convert", str(out), str(tmp_path / "again")]) == 0


def test_a_named_template_that_is_none_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.jinja").write_text("{% if %}")
    arguments = ["model", "convert", str(folder), str(tmp_path / "out"), "--template"]
    assert main.main([*arguments, str(tmp_path / "mine.jinja")]) == 2
    assert "not valid Jinja" in capsys.readouterr().err
    assert main.main([*arguments, str(tmp_path / "absent.jinja")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_model_is_replaced_when_asked_but_its_template_does_not_change_unnoticed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main.main(["model", "convert", str(folder), str(out)]) == 0
    assert main.main(["model", "convert", str(folder), str(out), "--dtype", "float32", "--replace"]) == 0
    assert load_folder(out).state["model.norm.weight"].dtype == torch.float32
    (tmp_path / "mine.jinja").write_text("{{ messages[0].content }}?")
    convert = ["model", "convert", str(folder), str(out), "--replace"]
    assert main.main([*convert, "--template", str(tmp_path / "mine.jinja")]) == 0
    assert main.main(convert) == 2
    assert f"the chat template in {out} is not that in tokenizer_config.json" in capsys.readouterr().err
    assert (out / "chat_template.jinja").read_text() == "{{ messages[0].content }}?"


def test_replacing_is_for_models_alone(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis").mkdir()
    assert main.main(["model", "convert", str(folder), str(tmp_path / "thesis"), "--replace"]) == 2
    assert "exists: choose another place" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["import", "convert"])
def test_a_model_that_brings_code_is_refused(
    action: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "modeling_mine.py").write_text("raise SystemExit('ran')")
    assert main.main(["model", action, str(folder), str(tmp_path / "out")]) == 2
    assert "modeling_mine.py" in capsys.readouterr().err
    (folder / "modeling_mine.py").unlink()
    for name in ("tokenizer_config.json", "config.json"):
        table = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(table | {"auto_map": {"AutoTokenizer": "mine.Mine"}}))
        assert main.main(["model", action, str(folder), str(tmp_path / "out")]) == 2
        assert f"{name} has an auto_map" in capsys.readouterr().err
        (folder / name).write_text(json.dumps(table))
    assert main.main(["model", action, str(folder), str(tmp_path / "out")]) == 0


def test_config_with_code_is_refused_wherever_it_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(table | {"auto_map": {"AutoModelForCausalLM": "mine.Mine"}}))
    assert main.main(["model", "inspect", str(folder)]) == 2
    assert "never run" in capsys.readouterr().err
