"""Each check finds the fault that it is for, next to the honest environment that passes all of them."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from farflung.envs.base import Environment, Grade, Split
from farflung.envs.checks.fingerprint import HASH_SEEDS, Fingerprint, Subject, fingerprint, fingerprints
from farflung.envs.checks.report import Check, Outcome
from farflung.envs.checks.run import Options, check_environment
from farflung.envs.simple import Row, SimpleEnvironment
from farflung.wire.canonical import sha256_hex
from farflung.wire.package import PackagedEnvironment, PackagedFile, PackageManifest
from farflung.wire.pool import GraderSpec
from farflung.wire.task import Task

SAME = Fingerprint(tasks="a" * 64, grades="b" * 64)
MANIFEST = PackageManifest(
    name="honest",
    version="0.1.0",
    summary="",
    licence="MIT",
    verifier="function",
    sandbox="none",
    is_reproducible=True,
    environments=(PackagedEnvironment(name="honest", reference="honest:environment"),),
    files=(PackagedFile(path="src/honest.py", num_bytes=1, sha256=sha256_hex(b"x")),),
)


class Honest(SimpleEnvironment):
    def __init__(self, **changes: Any) -> None:
        settings: dict[str, Any] = {
            "name": "honest",
            "tasks": lambda number: Row(prompt=f"{number}=", answer=str(number)),
            "num_tasks": 50,
            "rewards": {"exact": lambda task, completion: float(completion == task.answer)},
            "characters": "0123456789=",
        }
        super().__init__(**{**settings, **changes})


def checked(
    environment: Environment, pair: tuple[Fingerprint, Fingerprint] = (SAME, SAME), **options: Any
) -> list[Check]:
    return list(check_environment(environment, pair, Options(num_tasks=8, **options), MANIFEST))


def failing(environment: Environment, **options: Any) -> dict[str, str]:
    """Name of each check that failed -> what it says."""
    found = checked(environment, **options)
    return {check.name: check.detail for check in found if check.outcome is Outcome.FAILED}


def test_an_honest_environment_passes_all_checks() -> None:
    found = checked(Honest())
    assert [(check.name, check.outcome) for check in found] == [
        (name, Outcome.PASSED)
        for name in (
            "determinism",
            "held-out tasks",
            "golds",
            "blank completions",
            "hostile completions",
            "speed",
            "template",
            "manifest",
        )
    ]


class PaysBlank(Honest):
    def grade(self, task: Task, completion: str) -> Grade:  # E7
        return Grade(reward=1.0, correct=1.0) if completion in task.answer else Grade(reward=0.0, correct=0.0)


class GradesNoBlank(Honest):
    def grade(self, task: Task, completion: str) -> Grade:
        return super().grade(task, completion) if completion.strip() else Grade(reward=None)


class Raises(Honest):
    def grade(self, task: Task, completion: str) -> Grade:
        correct = float(completion.strip().isdigit() and int(completion) == int(task.answer))
        return Grade(reward=correct, correct=correct)


class Overpays(Honest):
    def grade(self, task: Task, completion: str) -> Grade:
        return Grade(reward=float(len(completion)), correct=super().grade(task, completion).correct)


class WrongGold(Honest):
    def demonstration(self, task: Task, draw: int) -> str:
        return f"{task.answer}0"


class RaisesOnTasks(Honest):
    def demonstration(self, task: Task, draw: int) -> str:
        raise KeyError("gold")


class Leaky(Honest):
    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        return super().task("train" if index >= 0 else split, index, target_length)


class NoEnd(Honest):
    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        return super().task(split, index % (self.num_tasks if split == "train" else self.num_heldout_tasks))


class Slow(Honest):
    def grade(self, task: Task, completion: str) -> Grade:
        if len(completion) > 10_000:
            time.sleep(0.3)
        return super().grade(task, completion)


@pytest.mark.parametrize(
    ("environment", "check", "detail"),
    [
        (PaysBlank(), "blank completions", "'' for train/0 is correct 1.0, reward 1.0"),
        (GradesNoBlank(), "blank completions", "'' for train/0: has no grade"),
        (Raises(), "hostile completions", "raises ValueError"),
        (Overpays(), "hostile completions", "reward is 20000.0"),
        (WrongGold(), "golds", r"'\d+0' for train/0 is correct 0.0, not 1"),
        (RaisesOnTasks(), "golds", "raises KeyError: 'gold'"),
        (Leaky(), "held-out tasks", "prompts are in both splits, such as '"),
        (NoEnd(), "held-out tasks", "task -1 of train, which has 45, is not refused"),
        (Slow(), "hostile completions", "took 0.3 s"),
        (Honest(characters="0123456789"), "template", "cannot spell '='"),
        (Honest(characters="012345678="), "template", "cannot spell '9'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Honest) else "",
)
def test_a_fault_is_found_and_told(environment: Environment, check: str, detail: str) -> None:
    found = failing(environment, max_grade_s=0.2)
    assert check in found
    assert re.search(detail, found[check]), found[check]


def test_what_is_too_long_is_found() -> None:
    assert "longest prompt has 3 tokens, and 2 fit" in failing(Honest(), max_prompt_tokens=2)["template"]
    assert "longest demonstrated turn has 2 tokens, and 1 fit" in failing(Honest(), max_completion_tokens=1)["template"]


def test_without_demonstrations_the_reference_answer_is_tried() -> None:
    class Silent(Honest):
        def demonstration(self, task: Task, draw: int) -> None:
            return None

    class Hidden(Silent):
        def grade(self, task: Task, completion: str) -> Grade:
            return Grade(reward=0.0, correct=0.0)

    by_name = {check.name: check.outcome for check in checked(Silent())}
    assert by_name["golds"] is Outcome.PASSED
    by_name = {check.name: check.outcome for check in checked(Hidden())}
    assert by_name["golds"] is Outcome.LEFT_OUT


@pytest.mark.parametrize(
    ("other", "detail"),
    [
        (Fingerprint(tasks="c" * 64, grades="b" * 64), "make different tasks"),
        (Fingerprint(tasks="a" * 64, grades="c" * 64), "grade differently"),
        (Fingerprint(error="took longer than 1 s"), "took longer than 1 s"),
    ],
)
def test_two_processes_that_disagree_are_told(other: Fingerprint, detail: str) -> None:
    first, *_ = checked(Honest(), (SAME, other))
    assert (first.name, first.outcome) == ("determinism", Outcome.FAILED)
    assert detail in first.detail


def test_nothing_is_graded_here_that_hung_in_a_process_of_its_own() -> None:
    def hang(task: Task, completion: str) -> float:
        raise AssertionError("graded")

    found = checked(Honest(rewards={"exact": hang}), (SAME, Fingerprint(error="took longer than 1 s")))
    assert [check.outcome for check in found[1:]] == [Outcome.LEFT_OUT] * 7


def test_grades_may_differ_where_that_is_declared() -> None:
    class Moody(Honest):
        is_reproducible = False

    pair = (SAME, Fingerprint(tasks="a" * 64, grades="c" * 64))
    found = {check.name: check for check in checked(Moody(), pair)}
    assert found["determinism"].outcome is Outcome.PASSED
    assert found["manifest"].detail == "reproducible is true, and it is not"


def test_a_manifest_that_is_not_true_is_found() -> None:
    class Program(Honest):
        graders = (GraderSpec(name="code", version=1),)

    detail = failing(Program())["manifest"]
    assert "verifier is function, and it grades by program" in detail
    assert "sandbox is none" in detail
    assert "calls itself 'other'" in failing(Honest(name="other"))["manifest"]


UNSTABLE = """
import os
from farflung.envs.simple import Row, SimpleEnvironment

WORDS = sorted({"one", "two", "three", "four", "five"}, key=hash)


def environment(seed, args):
    return SimpleEnvironment(
        name="unstable",
        tasks=lambda number: Row(prompt=f"{number}{WORDS[number % 5]}", answer="x"),
        num_tasks=50,
        rewards={"exact": reward},
    )


def reward(task, completion):
    return 1.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "unstable.py").write_text(UNSTABLE)
    return tmp_path


def told(folder: Path, hash_seed: int, limit_s: float = 60.0) -> Fingerprint:
    (found,) = fingerprints([Subject(name="unstable:environment", folder=str(folder))], hash_seed, limit_s)
    return found


def test_the_order_of_a_set_shows_between_two_processes(folder: Path) -> None:
    one, other = (told(folder, hash_seed) for hash_seed in HASH_SEEDS)
    assert (one.error, other.error) == ("", "")
    assert one.tasks != other.tasks
    assert one.grades == other.grades
    assert told(folder, HASH_SEEDS[0]) == one


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("    while True: pass", "took longer than 3 s"),
        ("    os._exit(7)", "the process ended with code 7"),
        ("    raise RuntimeError('no')", "RuntimeError: no"),
    ],
)
def test_an_environment_that_hangs_or_ends_its_process_ends_no_other(folder: Path, body: str, error: str) -> None:
    source = UNSTABLE.replace("    return 1.0", body).replace("key=hash", "key=str")
    (folder / "unstable.py").write_text(source)
    assert error in told(folder, 1, limit_s=3.0 if "longer" in error else 60.0).error


def test_a_fingerprint_covers_tasks_demonstrations_and_grades() -> None:
    honest = fingerprint(Honest())
    assert honest == fingerprint(Honest())
    assert fingerprint(WrongGold()).tasks != honest.tasks
    assert fingerprint(Honest(seed=1)).tasks != honest.tasks
    paying = fingerprint(Honest(rewards={"exact": lambda task, completion: 1.0}))
    assert paying.tasks == honest.tasks
    assert paying.grades != honest.grades
