"""`farflung eval`: interrupted, resumed, refused."""

import json
from pathlib import Path

import pytest

from farflung.cli import main
from farflung.envs.registry import load_environment
from farflung.evaluation.benchmark import vote
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import save_folder

ENV = "sort-digits"
OPTIONS = ["--env", ENV, "--env.num_digits=2", "--tasks", "6", "--samples", "4", "--max-tokens", "4"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    alphabet = load_environment(ENV, 0, {}).alphabet()
    assert alphabet is not None
    tokenizer = character_tokenizer(alphabet)
    config = tiny_config(tokenizer, hidden_size=8, num_heads=2, intermediate_size=8, num_layers=1)
    save_folder(tmp_path / "m", config, random_state(config, 0), tokenizer.files)
    return tmp_path / "m"


def evaluate(model: Path, *options: str) -> int:
    return main.main(["eval", str(model), *OPTIONS, *options])


def samples(path: Path) -> list[str]:
    return (path / "samples.jsonl").read_text().splitlines()


def test_an_evaluation_says_what_and_how_sure(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(model, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert {"avg@4", "pass@4", "maj@4"} <= result.keys()
    assert (result["num_tasks"], result["num_samples"]) == (6, 24)
    assert 0 <= result["avg@4"]["low"] <= result["avg@4"]["value"] <= result["avg@4"]["high"] <= 1


@pytest.mark.parametrize("num_lines", [1, 9, 11])
def test_an_interrupted_evaluation_ends_with_the_samples_of_an_unbroken_one(
    num_lines: int, model: Path, tmp_path: Path
) -> None:
    assert evaluate(model, "--out", str(tmp_path / "whole")) == 0
    assert evaluate(model, "--out", str(tmp_path / "cut")) == 0
    cut = tmp_path / "cut" / "samples.jsonl"
    cut.write_text("\n".join(samples(tmp_path / "whole")[:num_lines]) + "\n" + '{"task": 2, "sam')
    assert evaluate(model, "--out", str(tmp_path / "cut")) == 0
    assert samples(tmp_path / "cut") == samples(tmp_path / "whole")
    assert (tmp_path / "cut" / "result.json").read_text() == (tmp_path / "whole" / "result.json").read_text()


def test_more_tasks_extend_what_is_there(model: Path, tmp_path: Path) -> None:
    assert evaluate(model, "--out", str(tmp_path / "o")) == 0
    before = samples(tmp_path / "o")
    assert evaluate(model, "--out", str(tmp_path / "o"), "--tasks", "8") == 0
    assert samples(tmp_path / "o")[: len(before)] == before
    assert len(samples(tmp_path / "o")) == 1 + 8 * 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--samples", "0"], "--samples is 0"),
        (["--temperature", "0"], "--temperature is 0.0"),
        (["--k", "1,9"], "--k has 9"),
        (["--trainer.x", "1"], "--env.KEY VALUE"),
        (["--env.num_digits"], "no value"),
        (["--env.colour", "red"], "colour"),
    ],
)
def test_wrong_options_are_named(
    model: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(model, *options) == 2
    assert sentence in capsys.readouterr().err


def test_other_weights_in_the_same_folder_are_another_evaluation(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(model, "--out", str(tmp_path / "o")) == 0
    assert evaluate(model, "--out", str(tmp_path / "o"), "--temperature", "0.5") == 2
    assert "temperature: 1.0 -> 0.5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("completion", "answer"),
    [("<answer> 4 </answer>", "4"), (r"so \boxed{4}", "4"), ("#### 4", "4"), (" 4\n", "4"), ("<think>4", "")],
)
def test_a_vote_is_the_marked_answer_or_the_whole_text(completion: str, answer: str) -> None:
    assert vote(completion) == answer
