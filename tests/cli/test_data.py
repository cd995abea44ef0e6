"""`farflung data`: from published rows to tasks, filtered and cleaned; wrong input in words."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from farflung.cli import main
from farflung.data.task_row import TaskRow, TaskWriter, read_rows
from farflung.envs.bundled import bundled_items
from farflung.envs.dataset import Dataset
from farflung.envs.gsm8k import FILE
from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import save_folder


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def gsm8k(path: str, questions: list[str]) -> str:
    Path(path).write_text(
        "".join(
            json.dumps({"question": question, "answer": f"#### {at}"}) + "\n" for at, question in enumerate(questions)
        )
    )
    return path


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


def test_rows_become_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    gsm8k("a.jsonl", [f"How many is {number}?" for number in range(40)])
    Path("b.jsonl").write_text(json.dumps({"question": "q", "answer": "none"}) + "\n")
    assert main.main(["data", "import", "auto", "a.jsonl", "b.jsonl", "--out", "t", "--licence", "mit", "--json"]) == 0
    result = told(capsys)
    assert (result["num_tasks"], result["skipped"], result["licence"]) == (40, {"no answer after ####": 1}, "mit")
    environment = Dataset(0, {"path": "t", "sha256": str(result["sha256"])})
    assert (environment.num_tasks, environment.num_heldout_tasks) == (36, 4)
    task = environment.task("train", 7)
    assert environment.grade(task, rf"\boxed{{{task.answer}}}").reward == 1.0
    assert environment.grade(task, "").reward == 0.0
    train = {environment.task("train", index).messages for index in range(36)}
    assert not train & {environment.task("heldout", index).messages for index in range(4)}
    assert main.main(["data", "show", "t"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "How many is 0?" in shown  # a line of its own, as the prompt has it
    assert r"Put your final answer within \boxed{}." in shown


def test_the_same_row_stays_on_its_side_when_others_are_added() -> None:
    gsm8k("a.jsonl", [f"How many is {number}?" for number in range(60)])
    gsm8k("b.jsonl", [f"How many is {number}?" for number in range(60)] + ["One more?"])
    for name in ("a", "b"):
        assert main.main(["data", "import", "gsm8k", f"{name}.jsonl", "--out", name]) == 0
    first, second = (Dataset(0, {"path": name}) for name in ("a", "b"))
    held = [{each.task("heldout", at).task_id for at in range(each.num_heldout_tasks)} for each in (first, second)]
    assert len(held[0] & held[1]) >= len(held[0]) - 1


def test_other_rows_than_were_asked_for_are_refused() -> None:
    gsm8k("a.jsonl", ["How many?", "And how many?"])
    assert main.main(["data", "import", "gsm8k", "a.jsonl", "--out", "t"]) == 0
    with pytest.raises(UserError, match="is asked for"):
        Dataset(0, {"path": "t", "sha256": "0" * 64})
    with pytest.raises(UserError, match="argument path"):
        Dataset(0, {})


def test_tasks_of_a_bundled_test_set_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    question = bundled_items(FILE)[3]["question"]
    gsm8k("a.jsonl", ["How many apples are there?", f"Listen: {question}"])
    assert main.main(["data", "import", "gsm8k", "a.jsonl", "--out", "raw"]) == 0
    capsys.readouterr()
    assert main.main(["data", "decontaminate", "raw", "--out", "clean"]) == 0
    assert "is in gsm8k-100" in capsys.readouterr().out
    assert [row.prompt.splitlines()[0] for row in read_rows(Path("clean"))] == ["How many apples are there?"]


def test_a_further_test_set_can_be_named() -> None:
    sentence = "a b c d e f g h i j k l m n o p"
    gsm8k("a.jsonl", [sentence, "something else"])
    Path("secret.jsonl").write_text(json.dumps({"problem": f"x {sentence} y"}) + "\n")
    assert main.main(["data", "import", "gsm8k", "a.jsonl", "--out", "raw"]) == 0
    assert main.main(["data", "decontaminate", "raw", "--out", "clean", "--against", "secret.jsonl"]) == 0
    assert len(list(read_rows(Path("clean")))) == 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """It answers with one of four letters, about equally often."""
    tokenizer = character_tokenizer("abcd>")
    config = tiny_config(tokenizer, hidden_size=8, num_heads=2, intermediate_size=8, num_layers=1)
    save_folder(tmp_path / "m", config, random_state(config, 0), tokenizer.files)
    return tmp_path / "m"


def letters(number_of: int = 24) -> None:
    with TaskWriter(Path("t")) as writer:
        for number in range(number_of):
            prompt = "".join("abcd"[number >> shift & 3] for shift in (0, 2, 4, 6, 8)) + ">"
            writer.add(TaskRow(id=f"l{number}", prompt=prompt, answer="abcd"[number % 4], grader="text@1"))
        writer.finish(made_by="test", licence="mit", sources=[], skipped={})


FILTER = ["--samples", "8", "--max-tokens", "1"]


def test_a_filter_keeps_what_is_solved_sometimes_and_goes_on_after_an_interruption(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters()
    assert main.main(["data", "filter", "t", "--model", str(model), "--out", "k", *FILTER]) == 0
    assert "of 24 tasks are solved in 12.5% to 50.0% of 8 samples" in capsys.readouterr().out
    rates = json.loads(Path("k-samples/solve_rates.json").read_text())
    assert len(rates) == 24
    kept = {row.id for row in read_rows(Path("k"))}
    assert kept == {task_id.removeprefix("train/") for task_id, rate in rates.items() if 0.125 <= rate <= 0.5}
    assert Path("k-samples/solve_rates.png").stat().st_size > 3000
    lines = Path("k-samples/samples.jsonl").read_text().splitlines()
    Path("cut").mkdir()
    Path("cut/samples.jsonl").write_text("\n".join(lines[:70]) + '\n{"task": 9, "sa')
    again = ["data", "filter", "t", "--model", str(model), "--out", "k2", "--work", "cut", *FILTER]
    assert main.main(again) == 0
    assert Path("cut/samples.jsonl").read_text().splitlines() == lines
    assert Path("k2/tasks.jsonl").read_bytes() == Path("k/tasks.jsonl").read_bytes()


def test_a_filter_that_is_killed_goes_on_and_keeps_what_it_would_have_kept(model: Path) -> None:
    letters(number_of=400)
    command = ["data", "filter", "t", "--model", str(model), *FILTER]
    samples = Path("k-samples/samples.jsonl")
    process = subprocess.Popen([sys.executable, "-m", "farflung.cli.main", *command, "--out", "k"])
    while process.poll() is None and not (samples.exists() and samples.stat().st_size):
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = samples.read_bytes()
    assert 0 < before.count(b"\n") < 400 * 8
    assert main.main([*command, "--out", "k"]) == 0
    assert samples.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert main.main([*command, "--out", "whole"]) == 0
    assert Path("k/tasks.jsonl").read_bytes() == Path("whole/tasks.jsonl").read_bytes()
    assert samples.read_bytes() == Path("whole-samples/samples.jsonl").read_bytes()


def test_other_bounds_keep_other_tasks(model: Path) -> None:
    letters()
    for name, keep in (("low", "0:0.2"), ("high", "0.21:1")):
        command = ["data", "filter", "t", "--model", str(model), "--out", name, "--work", "w", "--keep", keep, *FILTER]
        assert main.main(command) == 0
    low, high = ({row.id for row in read_rows(Path(name))} for name in ("low", "high"))
    assert not low & high
    assert len(low | high) == 24


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["data", "import", "auto", "none.jsonl", "--out", "o"], "none.jsonl cannot be read"),
        (["data", "import", "auto", "x.jsonl", "--out", "o"], "say which FORMAT it is"),
        (["data", "import", "parquet", "x.jsonl", "--out", "o"], "invalid choice"),
        (["data", "import", "gsm8k", "x.jsonl", "--out", "o"], "no task is left"),
        (["data", "import", "gsm8k", "x.jsonl", "--out", "."], "exists"),
        (["data", "show", "nowhere"], "is no data set"),
        (["data", "filter", "nowhere", "--model", "m", "--out", "o"], "is no data set"),
        (["data", "filter", "nowhere", "--model", "m", "--out", "o", "--keep", "1:0"], "--keep is 1:0"),
        (["data", "filter", "t", "--model", "m", "--out", "o", "--samples", "0"], "--samples is 0"),
        (["data", "filter", "t", "--model", "m", "--out", "o", "--max-tokens", "-1"], "--max-tokens is -1"),
        (["data", "decontaminate", "t", "--out", "o", "--words", "7"], "--words is 7: it must be at least 8"),
    ],
)
def test_wrong_input_is_said_in_a_sentence(command: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.jsonl").write_text('{"title": "no task"}\n')
    gsm8k("good.jsonl", ["How many is 1?", "How many is 2?"])
    assert main.main(["data", "import", "gsm8k", "good.jsonl", "--out", "t"]) == 0
    assert main.main(command) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert not Path("o").exists()
