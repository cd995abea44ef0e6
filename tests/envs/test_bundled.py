"""Published test sets: whole, in the published order, gradable by their own solutions, and for evaluation alone."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from farflung.cli.config import RunConfig
from farflung.cli.pool_rules import build_pool
from farflung.envs.base import graders_of, level_of
from farflung.envs.graders.code import CodeOptions, shared_pool
from farflung.envs.named import NamedEnvironment
from farflung.envs.registry import load_environment
from farflung.errors import UserError

SETS = {"gsm8k-100": 100, "humaneval": 164}


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_whole_and_the_same_for_every_seed(name: str) -> None:
    one, other = load_environment(name, 0, {}), load_environment(name, 1, {})
    assert (one.num_tasks, one.num_heldout_tasks) == (0, SETS[name])
    tasks = [one.task("heldout", index) for index in range(SETS[name])]
    assert tasks == [other.task("heldout", index) for index in range(SETS[name])]
    assert len({task.messages for task in tasks}) == len({task.task_id for task in tasks}) == SETS[name]
    for split, index in (("train", 0), ("heldout", SETS[name]), ("heldout", -1)):
        with pytest.raises(IndexError):
            one.task("train" if split == "train" else "heldout", index)


def test_every_published_solution_of_gsm8k_scores_1_and_others_0() -> None:
    environment = load_environment("gsm8k-100", 0, {})
    for index in range(environment.num_heldout_tasks):
        task = environment.task("heldout", index)
        gold = environment.demonstration(task, 0)
        assert gold is not None
        assert "<<" not in gold
        assert environment.grade(task, gold).reward == 1.0, task
        assert environment.grade(task, gold.replace(f"boxed{{{task.answer}}}", "boxed{-1}")).reward == 0.0
        assert environment.grade(task, "").reward == 0.0
        assert environment.grade(task, f"It is {task.answer}").reward == 0.0, "an answer is marked"


def test_what_only_the_prompt_marks_is_no_answer() -> None:  # case 33
    environment = load_environment("gsm8k-100", 0, {})
    task = environment.task("heldout", 0)
    assert r"\boxed{" in task.messages[0].content
    assert environment.grade(task, f"The number is {task.answer}.").reward == 0.0
    assert environment.grade(task, rf"The number is \boxed{{{task.answer}}}.").reward == 1.0


def test_the_levels_of_gsm8k_are_numbers_of_steps() -> None:
    environment = NamedEnvironment(load_environment("gsm8k-100", 0, {}))
    levels = [level_of(environment, environment.task("heldout", index)) for index in range(100)]
    assert {level: levels.count(level) for level in sorted(set(levels))} == {
        "0 steps": 2,
        "1 step": 7,
        "2 steps": 21,
        "3 steps": 33,
        "4 steps": 22,
        "5 steps": 6,
        "6 steps or more": 9,
    }


def test_a_task_of_humaneval_shows_no_test_and_its_tests_stand_alone() -> None:
    environment = load_environment("humaneval", 0, {})
    for index in range(environment.num_heldout_tasks):
        task = environment.task("heldout", index)
        tests: dict[str, Any] = json.loads(task.answer)
        assert "def check(" in tests["source"]
        assert "check(candidate)" not in task.messages[0].content
        compile(tests["source"], "tests", "exec")
        assert f"def {tests['entry']}(" in task.messages[0].content


@pytest.fixture
def programs() -> Iterator[None]:
    """The sandboxes that graders share end here and not with the process, which would warn of them."""
    yield
    shared_pool(CodeOptions().limits()).close()
    shared_pool.cache_clear()


@pytest.mark.usefixtures("programs")
def test_published_solutions_of_humaneval_score_1_and_stubs_0() -> None:
    environment = load_environment("humaneval", 0, {})
    for index in (0, 32, 38, 50):  # three of them call helpers of the prompt
        task = environment.task("heldout", index)
        gold = environment.demonstration(task, 0)
        assert gold is not None
        assert environment.grade(task, gold).reward == 1.0, task.task_id
    assert environment.grade(task, "```python\ndef f(): pass\n```").reward == 0.0


@pytest.mark.parametrize("name", SETS)
def test_no_pool_is_made_of_a_test_set(name: str) -> None:
    config = RunConfig.model_validate({"run": {"name": "x"}, "environment": {"name": name}})
    with pytest.raises(UserError, match="nothing is trained on"):
        build_pool(config)


def test_the_grader_of_a_set_is_an_argument() -> None:
    environment = load_environment("gsm8k-100", 0, {"grader": "integer@1"})
    assert [spec.label for spec in graders_of(environment)] == ["integer@1"]
    task = environment.task("heldout", 0)
    assert environment.grade(task, f"#### {task.answer}").reward == 1.0
    with pytest.raises(UserError, match="argument of environment gsm8k-100"):
        load_environment("gsm8k-100", 0, {"grader": "integer"})
