"""Sort digits, reverse text, arithmetic: one right answer each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.arithmetic import Arithmetic, calculate
from farflung.envs.reverse_text import ReverseText, share_of_right_positions
from farflung.envs.sort_digits import SortDigits
from farflung.errors import UserError
from farflung.wire.pool import EnvArg
from farflung.wire.task import Message, Task


def asks(prompt: str, answer: str) -> Task:
    return Task(env="any", task_id="train/0", messages=(Message(role="user", content=prompt),), answer=answer)


@given(st.integers(0, 998_975), st.integers(0, 3))
def test_sorted_digits_are_the_prompts_digits_in_order(index: int, seed: int) -> None:
    task = SortDigits(seed, {}).task("train", index)
    digits = task.messages[0].content.removesuffix(">")
    assert len(digits) == 6
    assert list(task.answer) == sorted(digits)


def test_every_string_of_digits_is_asked_exactly_once() -> None:
    env = SortDigits(0, {"num_digits": 3})
    prompts = [env.task("train", index).messages[0].content for index in range(env.num_tasks)]
    prompts += [env.task("heldout", index).messages[0].content for index in range(env.num_heldout_tasks)]
    assert sorted(prompts) == [f"{number:03}>" for number in range(1000)]


@pytest.mark.parametrize("completion", ["01247", "0124799", "402917", "012479012479", "0 1 2 4 7 9", "12479", "x"])
def test_any_other_string_of_digits_scores_0(completion: str) -> None:
    assert SortDigits(0, {}).grade(asks("402917>", "012479"), completion).reward == 0.0


def test_reversed_text_is_the_prompt_backwards() -> None:
    env = ReverseText(0, {"num_letters": 9})
    for index in range(50):
        task = env.task("train", index)
        prompt = task.messages[0].content.removesuffix(">")
        assert len(prompt) == 9
        assert task.answer == "".join(reversed(prompt))


@pytest.mark.parametrize(
    ("completion", "exact", "share"),
    [("snomel", 1.0, 1.0), ("snomle", 0.0, 4 / 6), ("sno", 0.0, 0.5), ("snomelsnomel", 0.0, 0.5), ("", 0.0, 0.0)],
)
def test_partial_pays_the_share_of_right_positions(completion: str, exact: float, share: float) -> None:
    task = asks("lemons>", "snomel")
    assert ReverseText(0, {}).grade(task, completion).reward == exact
    grade = ReverseText(0, {"partial": True}).grade(task, completion)
    assert grade.reward == pytest.approx(share)
    assert grade.correct == exact


@given(st.text(max_size=9), st.text(max_size=9))
def test_only_the_same_text_has_all_positions_right(one: str, other: str) -> None:
    assert (share_of_right_positions(one, other) == 1.0) == (one == other != "")


def test_every_operation_and_operand_pair_is_asked_exactly_once() -> None:
    env = Arithmetic(0, {"max_value": 9, "ops": "+-*"})
    tasks = [env.task("train", index) for index in range(env.num_tasks)]
    tasks += [env.task("heldout", index) for index in range(env.num_heldout_tasks)]
    expected = {
        f"{left}{op}{right}=": str(calculate(left, op, right))
        for left in range(10)
        for op in "+-*"
        for right in range(10)
    }
    assert {task.messages[0].content: task.answer for task in tasks} == expected
    assert len(tasks) == 300


@pytest.mark.parametrize(("left", "op", "right", "result"), [(7, "+", 8, 15), (7, "-", 8, -1), (7, "*", 8, 56)])
def test_operations_mean_what_they_say(left: int, op: str, right: int, result: int) -> None:
    assert calculate(left, op, right) == result


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("-21", 1.0),
        ("\u221221", 1.0),
        (" -21\n", 1.0),
        (r"37 - 58 = \boxed{-21}", 1.0),
        ("<think>20? 21?</think>-21", 1.0),
        ("The answer is -21.", 1.0),
        ("21", 0.0),
        ("-21.0", 0.0),
        ("-21 or 21", 0.0),
        ("-2121", 0.0),
        ("<think>-21", 0.0),
        (r"-21 \boxed{}", 0.0),
        (r"-21 \boxed{3}", 0.0),
        ("37-58", 0.0),
    ],
)
def test_an_integer_counts_alone_or_marked(completion: str, reward: float) -> None:
    assert Arithmetic(0, {}).grade(asks("37-58=", "-21"), completion).reward == reward


@pytest.mark.parametrize(
    ("ops", "message"), [("++", "each operation once"), ("/", r"of the form"), ("", r"of the form"), ("+-*+", "form")]
)
def test_unknown_or_repeated_operations_are_refused(ops: EnvArg, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Arithmetic(0, {"ops": ops})
