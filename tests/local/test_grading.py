from typing import Any

import pytest

from farflung.envs.base import Grade
from farflung.local.grading import UNGRADED, Grader
from rough_environment import Rough
from tiny_pool import description, environment

TASK = environment().task("train", 0)


def a_grader(**args: Any) -> Grader:
    return Grader(Rough(0, args), description().tokenizer.decode, max_abs_reward=1000.0)


def tokens(text: str) -> list[int]:
    return description().tokenizer.encode(text)


def test_a_right_answer_is_worth_what_the_environment_says() -> None:
    assert a_grader().grade(TASK, tokens(TASK.answer)) == environment().grade(TASK, TASK.answer)


@pytest.mark.parametrize(
    ("fault", "kind"), [("raise", "RuntimeError"), ("nan", "RewardOutOfRange"), ("huge", "RewardOutOfRange")]
)
def test_a_grade_that_fails_is_no_reward_and_is_counted_once(fault: str, kind: str) -> None:
    grader = a_grader(fault=fault)
    assert [grader.grade(TASK, tokens("12")) for _ in range(2)] == [UNGRADED, UNGRADED]
    assert grader.take_faults() == {kind: 2}
    assert grader.take_faults() == {}
    assert TASK.task_id in grader.first_fault
    assert Grade(reward=None) == UNGRADED
