"""Any environment of one turn with thinking budgets: how they are told, taken away again, and demonstrated."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.budgeted import Budgeted
from farflung.envs.registry import load_environment
from farflung.errors import UserError
from farflung.wire.pool import EnvArg

SHORT: Mapping[str, EnvArg] = {
    "num_digits": 4,
    "budget.targets": "8,16,24",
    "budget.told": "{target}:",
    "budget.where": "start",
    "budget.after": "|",
    "budget.filler": ".",
}


def budgeted(member: str = "sort-digits", **changes: EnvArg) -> Budgeted:
    """Digits to sort; `__` in a name stands for the dot."""
    args = {**SHORT, **{name.replace("__", "."): value for name, value in changes.items()}}
    environment = load_environment(f"budgeted:{member}", 0, args)
    assert isinstance(environment, Budgeted)
    return environment


def test_the_prompt_tells_the_budget_where_it_was_asked_to() -> None:
    plain = load_environment("sort-digits", 0, {"num_digits": 4}).task("train", 3).messages[0].content
    start = budgeted().task("train", 3, 16).messages
    end = budgeted(budget__told=" Take {target}.", budget__where="user").task("train", 3, 16).messages
    system = budgeted(budget__told=" Take {target}.", budget__where="system").task("train", 3, 16).messages
    assert [message.content for message in start] == [f"16:{plain}"]
    assert [message.content for message in end] == [f"{plain} Take 16."]
    assert [(message.role, message.content) for message in system] == [("system", "Take 16."), ("user", plain)]


def test_the_default_sentence_is_the_published_one() -> None:
    environment = load_environment("budgeted:arithmetic", 0, {"budget.targets": "512,1024"})
    content = environment.task("train", 0, 1024).messages[0].content
    assert content.endswith(" Think for 1024 tokens before giving a response.")


def test_without_a_budget_the_task_is_the_members_own() -> None:
    environment = budgeted()
    task = environment.task("heldout", 5)
    assert (task.target_length, task.env) == (0, "budgeted:sort-digits")
    assert task.messages == environment.member.task("heldout", 5).messages


@pytest.mark.parametrize("where", ["user", "start", "system"])
@given(index=st.integers(0, 200), target=st.sampled_from([8, 16, 24]), thinking=st.text(max_size=20))
def test_the_member_grades_the_task_it_made(where: str, index: int, target: int, thinking: str) -> None:
    environment = budgeted("mod-sum", num_digits=4, thinking_budget=False, budget__where=where)
    task = environment.task("train", index, target)
    inner = environment.member.task("train", index)
    right = environment.member.demonstration(inner, 0)
    assert environment.grade(task, f"{thinking}|{right}") == environment.member.grade(inner, right or "")
    assert environment.grade(task, f"{thinking}|{right}").correct == 1.0


def test_an_answer_that_no_thinking_ends_before_is_none() -> None:
    environment = budgeted()
    task = environment.task("train", 0, 8)
    assert environment.grade(task, f"..|{task.answer}").correct == 1.0
    assert environment.grade(task, task.answer).correct == 0.0
    assert environment.grade(task, f"..|{task.answer}|").correct == 0.0


def test_demonstrations_that_honour_the_target_have_its_length_with_the_end() -> None:
    environment = budgeted(budget__honours=1.0)
    for draw in range(30):
        target = environment.target_lengths[draw % 3]
        shown = environment.demonstration(environment.task("train", draw, target), draw)
        assert shown is not None
        assert len(shown) + 1 == target


def test_the_others_are_of_any_length_in_the_range() -> None:
    environment = budgeted(budget__honours=0.0)
    task = environment.task("train", 0, 8)
    lengths = {len(environment.demonstration(task, draw) or "") + 1 for draw in range(400)}
    assert lengths == set(range(8, 25))


def test_a_demonstration_is_right_and_spelled_in_the_alphabet() -> None:
    environment = budgeted()
    alphabet = set(environment.alphabet() or "")
    for draw in range(30):
        task = environment.task("train", draw, environment.target_lengths[draw % 3])
        shown = environment.demonstration(task, draw)
        assert shown is not None
        assert environment.grade(task, shown).correct == 1.0
        assert set(shown + task.messages[0].content) <= alphabet


def test_targets_are_a_set_or_a_range() -> None:
    assert budgeted(budget__targets="24, 8 16,8").target_lengths == (8, 16, 24)
    assert budgeted(budget__targets="8..11").target_lengths == (8, 9, 10, 11)
    assert budgeted(budget__targets="8..17/4").target_lengths == (8, 12, 16)


@pytest.mark.parametrize("targets", ["", "0,8", "-8", "8..4", "8..16/0", "1..99999", "8,x", "²", "8..4..2"])
def test_other_targets_are_refused_with_what_to_write(targets: str) -> None:
    with pytest.raises(UserError, match="write numbers of tokens"):
        budgeted(budget__targets=targets)


@pytest.mark.parametrize("told", ["think", "{target} or {target}"])
def test_a_sentence_without_its_target_is_refused(told: str) -> None:
    with pytest.raises(UserError, match="once"):
        budgeted(budget__told=told)


def test_members_that_have_budgets_or_turns_are_refused() -> None:
    with pytest.raises(UserError, match="of its own"):
        budgeted("mod-sum")
    with pytest.raises(UserError, match="several turns"):
        load_environment("budgeted:take-away", 0, {"budget.targets": "8"})


def test_an_unknown_argument_is_named_and_the_members_are_the_members() -> None:
    with pytest.raises(UserError, match="target"):
        budgeted(budget__target="8")
    with pytest.raises(UserError, match="num_digit"):
        budgeted(num_digit=4)
    with pytest.raises(UserError, match=r"needs budget\.after"):
        budgeted(budget__after="")


def test_a_target_that_is_not_offered_is_refused() -> None:
    with pytest.raises(ValueError, match="target length 9"):
        budgeted().task("train", 0, 9)


def test_a_mixture_keeps_its_parts() -> None:
    args: dict[str, EnvArg] = {"members": "sort-digits reverse-text", "budget.targets": "8"}
    environment = load_environment("budgeted:mixture", 0, args)
    assert isinstance(environment, Budgeted)
    assert [stratum.name for stratum in environment.strata] == ["sort-digits", "reverse-text"]
    task = environment.task("train", 1, 8)
    assert environment.level(task) in {"sort-digits", "reverse-text"}
    assert environment.grade(task, task.answer).correct == 1.0
