import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.long_addition import LongAddition, write_columns
from farflung.errors import UserError
from farflung.wire.task import Message, Task

WORK = "7+1+0=08;2+6+0=08;8+9+0=17;4+3+1=08;"


def asks(prompt: str = "4827+3961=", answer: str = "8788") -> Task:
    return Task(
        env="long-addition",
        task_id="train/0",
        messages=(Message(role="user", content=prompt),),
        answer=answer,
        target_length=0,
    )


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        (f"{WORK}>8788", 1.0),
        (f"{WORK}>08788", 1.0),
        (f"{WORK}>8789", 0.0),
        ("9+9+9=99;>8788", 1.0),
        ("8788", 1.0),
        (">1>8788", 1.0),
        (">8788>1", 0.0),
        (f"{WORK}>", 0.0),
        (WORK, 0.0),
        (">87 88", 0.0),
        ("", 0.0),
    ],
)
def test_only_the_integer_after_the_last_mark_counts(completion: str, reward: float) -> None:
    grade = LongAddition(0, {}).grade(asks(), completion)
    assert (grade.reward, grade.correct) == (reward, reward)


def test_a_demonstration_works_from_the_right_and_hands_the_carry_on() -> None:
    assert LongAddition(0, {}).demonstration(asks(), 0) == f"{WORK}>8788"
    assert write_columns("999", "001") == "9+1+0=10;9+0+1=10;9+0+1=10;"


@given(st.integers(0, 9999), st.integers(0, 9999))
def test_the_columns_contain_the_sum(left: int, right: int) -> None:
    steps = write_columns(f"{left:04}", f"{right:04}").split(";")[:-1]
    digits = [step.partition("=")[2] for step in steps]
    assert int(digits[-1][0] + "".join(digit[1] for digit in reversed(digits))) == left + right


def test_operands_have_all_their_digits_and_every_demonstration_the_same_length_but_for_the_answer() -> None:
    env = LongAddition(3, {"num_digits": 3})
    tasks = [env.task("train", index) for index in range(200)]
    assert {len(task.messages[0].content) for task in tasks} == {8}
    assert {len(env.demonstration(task, 0)) - len(task.answer) for task in tasks} == {28}
    assert env.num_tasks + env.num_heldout_tasks == 10**6


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="num_digits is 8"):
        LongAddition(0, {"num_digits": 8})
