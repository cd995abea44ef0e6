"""`--adapter` of eval, chat and serve: the model with a LoRA adapter beside it."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch

from farflung.cli import main
from farflung.envs.registry import load_environment
from farflung.model.adapter_files import Adapter, save_adapter_folder
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import save_folder
from farflung.model.lora import LoraSpec, adapter_shapes, merge

ENV = "sort-digits"
SPEC = LoraSpec(rank=2, alpha=8.0)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`base`, `adapter`, and `merged` from the two."""
    monkeypatch.chdir(tmp_path)
    alphabet = load_environment(ENV, 0, {}).alphabet()
    assert alphabet is not None
    tokenizer = character_tokenizer(alphabet)
    config = tiny_config(tokenizer, hidden_size=16, num_heads=2, intermediate_size=16, num_layers=2)
    base = random_state(config, 0, std=0.3)
    generator = torch.Generator().manual_seed(5)
    numbers = {
        name: 0.3 * torch.randn(shape, generator=generator) for name, shape in adapter_shapes(config, SPEC).items()
    }
    save_folder(tmp_path / "base", config, base, tokenizer.files, dtype=torch.float32)
    save_folder(tmp_path / "merged", config, merge(base, numbers, SPEC), tokenizer.files, dtype=torch.float32)
    save_adapter_folder(tmp_path / "adapter", Adapter(spec=SPEC, state=numbers))
    return tmp_path


def evaluated(out: str, *options: str) -> list[str]:
    """A line per sample."""
    arguments = ["--env", ENV, "--env.num_digits=2", "--tasks", "6", "--samples", "4", "--max-tokens", "4"]
    assert main.main(["eval", *options, *arguments, "--out", out]) == 0
    return Path(out, "samples.jsonl").read_text().splitlines()[1:]


@pytest.mark.usefixtures("folders")
def test_eval_measures_the_model_with_its_adapter() -> None:
    apart = evaluated("apart", "base", "--adapter", "adapter")
    assert len(apart) == 24
    assert apart == evaluated("whole", "merged")
    assert apart != evaluated("plain", "base")


@pytest.mark.usefixtures("folders")
def test_eval_does_not_mix_samples_with_and_without(capsys: pytest.CaptureFixture[str]) -> None:
    evaluated("o", "base")
    assert main.main(["eval", "base", "--adapter", "adapter", "--env", ENV, "--out", "o"]) == 2
    assert "o" in capsys.readouterr().err


def talked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    monkeypatch.setattr(sys, "stdin", io.StringIO("12\n21\n"))
    assert main.main(["chat", *options, "--seed", "1", "--max-tokens", "8"]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("folders")
def test_chat_talks_with_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    apart = talked(monkeypatch, capsys, "base", "--adapter", "adapter")
    assert apart == talked(monkeypatch, capsys, "merged")
    assert apart != talked(monkeypatch, capsys, "base")


@pytest.mark.parametrize("command", ["eval", "chat", "serve"])
def test_a_folder_that_is_no_adapter_is_named(command: str, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rest = ["--env", ENV] if command == "eval" else []
    assert main.main([command, "base", "--adapter", "merged", *rest]) == 2
    assert "merged has no adapter_config.json" in capsys.readouterr().err
    config = json.loads((folders / "adapter" / "adapter_config.json").read_text())
    (folders / "adapter" / "adapter_config.json").write_text(json.dumps(config | {"use_dora": True}))
    assert main.main([command, "base", "--adapter", "adapter", *rest]) == 2
    assert "use_dora is True" in capsys.readouterr().err
