"""Environments from plain functions."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.base import Grade
from farflung.envs.checks.fingerprint import Fingerprint
from farflung.envs.checks.report import Outcome
from farflung.envs.checks.run import Options, check_environment
from farflung.envs.simple import Row, SimpleEnvironment
from farflung.errors import UserError
from farflung.wire.task import Message, Task


def row(number: int) -> Row:
    return Row(prompt=f"{number}=", answer=str(number))


def exact(task: Task, completion: str) -> float:
    return float(completion.strip() == task.answer)


def brief(task: Task, completion: str) -> float:
    return 1.0 - len(completion) / 100


def environment(**changes: object) -> SimpleEnvironment:
    settings = {"name": "mine", "tasks": row, "num_tasks": 50, "rewards": {"exact": exact, "brief": (0.5, brief)}}
    return SimpleEnvironment(**{**settings, **changes})  # type: ignore[arg-type]


def test_rewards_are_weighted_and_each_is_a_component_by_name() -> None:
    env = environment()
    task = env.task("train", 3)
    grade = env.grade(task, f" {task.answer} ")
    length = len(task.answer) + 2
    assert grade == Grade(
        reward=1 + 0.5 * (1 - length / 100), correct=1.0, components={"exact": 1.0, "brief": 1 - length / 100}
    )
    assert env.grade(task, "no").correct == 0.0


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u200b\u2060", "\x00"])
def test_a_blank_completion_is_worth_0_whatever_the_functions_say(blank: str) -> None:  # E7
    env = environment(rewards={"generous": lambda task, completion: 1.0})
    assert env.grade(env.task("train", 0), blank) == Grade(reward=0.0, correct=0.0, components={"generous": 0.0})


def test_a_reward_of_none_means_that_the_task_cannot_be_graded() -> None:
    env = environment(rewards={"exact": exact, "broken": lambda task, completion: None})
    grade = env.grade(env.task("train", 0), "x")
    assert (grade.reward, grade.correct) == (None, None)


def test_correct_is_what_the_first_reward_says() -> None:
    env = environment(rewards={"half": lambda task, completion: 0.5, "whole": lambda task, completion: 1.0})
    grade = env.grade(env.task("train", 0), "x")
    assert (grade.reward, grade.correct) == (1.5, 0.0)


def test_rows_of_a_function_are_dealt_to_the_splits_once() -> None:
    env = environment()
    prompts = [env.task("train", index).answer for index in range(env.num_tasks)]
    held = [env.task("heldout", index).answer for index in range(env.num_heldout_tasks)]
    assert sorted(int(each) for each in [*prompts, *held]) == list(range(50))


@given(st.lists(st.integers(0, 30), min_size=2), st.floats(0.01, 0.9))
def test_a_prompt_that_comes_twice_in_a_list_is_in_one_split(numbers: list[int], share: float) -> None:
    rows = [row(number) for number in numbers]
    if len(set(numbers)) < 2:
        with pytest.raises(UserError, match="different prompts"):
            environment(tasks=rows, heldout=share)
        return
    env = environment(tasks=rows, heldout=share)
    train = [env.task("train", index).messages for index in range(env.num_tasks)]
    heldout = [env.task("heldout", index).messages for index in range(env.num_heldout_tasks)]
    assert not set(train) & set(heldout)
    assert len(train) + len(heldout) == len(numbers)
    assert train
    assert heldout


def test_rows_come_from_a_file_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"prompt": "a", "answer": "1"}\n\n'
        '{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "b"}], "answer": "2"}\n'
    )
    env = environment(tasks=path, heldout=0.5)
    answers = {env.task("train", 0).answer, env.task("heldout", 0).answer}
    assert (env.num_tasks, env.num_heldout_tasks, answers) == (1, 1, {"1", "2"})


@pytest.mark.parametrize("line", ["{", '{"prompt": "a"}', '{"prompt": "a", "answer": "1", "gold": "2"}', "[]"])
def test_a_line_that_is_no_row_is_named_by_file_and_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"prompt": "a", "answer": "1"}}\n{line}\n')
    with pytest.raises(UserError, match=r"rows\.jsonl:2: .*a line is"):
        environment(tasks=path)


def test_held_out_rows_may_not_be_among_the_tasks() -> None:
    with pytest.raises(UserError, match="1 prompts of environment mine are in both splits"):
        environment(tasks=[row(1), row(2)], heldout=[row(2)])


def test_a_demonstration_is_the_answer_unless_the_row_has_its_own() -> None:
    env = environment(tasks=[Row(prompt="a", answer="1"), Row(prompt="b", answer="2", demonstration="so: 2")])
    shown = {env.demonstration(env.task(split, 0), 0) for split in ("train", "heldout")}
    assert shown == {"1", "so: 2"}


def test_target_lengths_are_told_by_a_function_of_the_author() -> None:
    def told(messages: tuple[Message, ...], target: int) -> tuple[Message, ...]:
        return (Message(role="system", content=f"Think for {target}."), *messages)

    env = environment(target_lengths=(8, 16), with_budget=told)
    assert env.task("train", 0, 16).messages[0].content == "Think for 16."
    assert env.task("train", 0).messages[0].role == "user"
    with pytest.raises(ValueError, match="target length 9"):
        env.task("train", 0, 9)
    with pytest.raises(UserError, match="give with_budget"):
        environment(target_lengths=(8,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": {}}, "has no rewards"),
        ({"num_tasks": None}, "give num_tasks"),
        ({"num_tasks": 1}, "give num_tasks"),
        ({"tasks": [row(1)]}, "has 1 different prompts"),
        ({"tasks": "no/such.jsonl"}, "cannot be read"),
        ({"tasks": [row(1), row(2)], "heldout": 1.5}, "a share between 0 and 1"),
    ],
)
def test_what_cannot_be_an_environment_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        environment(**changes)


def test_the_environment_of_the_documentation_passes_every_check() -> None:
    page = Path(__file__).parents[2] / "docs" / "environment-packages.md"
    (source,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in source.splitlines() if line.strip()]) <= 30
    namespace: dict[str, Any] = {}
    exec(compile(source, "count_a.py", "exec"), namespace)
    same = Fingerprint(tasks="a", grades="b")
    checks = check_environment(namespace["environment"](0, {}), (same, same), Options(num_tasks=8))
    assert {check.outcome for check in checks} == {Outcome.PASSED}
