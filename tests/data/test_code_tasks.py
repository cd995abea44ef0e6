"""The shipped programs, from the file to a verdict of the sandbox."""

from pathlib import Path

import pytest

from farflung.cli import main
from farflung.envs.dataset import Dataset

EXAMPLE = Path(__file__).parents[2] / "examples" / "code"


@pytest.fixture
def tasks(tmp_path: Path) -> Dataset:
    out = str(tmp_path / "tasks")
    assert main.main(["data", "import", "auto", str(EXAMPLE / "programs.jsonl"), "--out", out, "--licence", "mit"]) == 0
    return Dataset(0, {"path": out})


def test_each_reference_solution_passes_its_tests_in_the_sandbox_and_another_program_does_not(tasks: Dataset) -> None:
    """verifiers#1602, complaint 26: the sandbox is local, and there without being asked for."""
    shown = [tasks.task("train", index) for index in range(tasks.num_tasks)]
    assert len(shown) == 18
    assert tasks.num_heldout_tasks == 2
    solutions = [str(tasks.demonstration(task, 0)) for task in shown]
    assert [tasks.grade(task, solution).reward for task, solution in zip(shown, solutions, strict=True)] == [1.0] * 18
    others = solutions[1:] + solutions[:1]
    assert [tasks.grade(task, other).reward for task, other in zip(shown, others, strict=True)] == [0.0] * 18


def test_a_program_that_answers_for_the_tests_is_worth_nothing(tasks: Dataset) -> None:
    task = tasks.task("train", 0)
    for program in ("import os\nos._exit(0)", "raise SystemExit(0)", "def double(x): return 4"):
        assert tasks.grade(task, f"```python\n{program}\n```").reward == 0.0
