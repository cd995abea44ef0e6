"""`farflung chat` and `farflung serve` from the command line."""

import io
import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from farflung.cli import main
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import save_folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tokenizer = character_tokenizer("abcdefghijklmnopqrstuvwxyz 0123456789.>Think")
    config = tiny_config(tokenizer, hidden_size=16, num_heads=2, intermediate_size=16, num_layers=1)
    save_folder(tmp_path / "tiny", config, random_state(config, 0, std=0.3), tokenizer.files)
    return tmp_path / "tiny"


def talk(model: Path, lines: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    return main.main(["chat", str(model), "--seed", "1", "--max-tokens", "8", *options])


def test_the_same_seed_and_words_give_the_same_talk(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for _ in range(2):
        assert talk(model, "hello\n\nand you\n/reset\nhello\n/exit\nnever\n", monkeypatch) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) >= 4


@pytest.mark.parametrize(
    ("where", "told", "by_hand"),
    [("user", " {target}.", "hello 9.\nand you 9.\n"), ("start", "{target}>", "9>hello\nand you\n")],
)
def test_a_budget_is_told_as_if_it_were_said(
    where: str,
    told: str,
    by_hand: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--budget", "9", "--budget-told", told, "--budget-where", where]
    assert talk(model, "hello\nand you\n", monkeypatch, *options) == 0
    with_budget = capsys.readouterr().out
    assert talk(model, by_hand, monkeypatch) == 0
    assert capsys.readouterr().out == with_budget


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        ("a" * 600 + "\n", [], "too long"),
        ("hi\n", ["--temperature", "-1"], "--temperature is -1.0"),
        ("hi\n", ["--max-tokens", "0"], "--max-tokens is 0"),
        ("hi\n", ["--budget", "0"], "--thinking-budget is 0"),
        ("hi\n", ["--budget-told", "think"], "{target}"),
        ("\u4f60\n", [], "cannot spell"),
    ],
)
def test_what_cannot_be_said_is_told(
    model: Path, lines: str, options: list[str], sentence: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert talk(model, lines, monkeypatch, *options) == 2
    assert sentence in capsys.readouterr().err


def test_serve_answers_and_stops_on_a_signal(model: Path) -> None:
    command = [sys.executable, "-m", "farflung.cli.main", "serve", str(model), "--serve.port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            words = server.stdout.readline().split()
            assert words[:2] == ["serving", "tiny"]
            body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 3}).encode()
            with urllib.request.urlopen(f"{words[3]}/completions", body, timeout=20) as answer:
                assert json.load(answer)["usage"]["prompt_tokens"] == 1
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(20) == 130


def test_a_folder_that_is_no_model_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["serve", str(tmp_path)]) == 2
    assert "no config.json" in capsys.readouterr().err
