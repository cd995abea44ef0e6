"""A mixture hands out its members' own tasks by weight, and leaves what they are worth to the members."""

from itertools import islice

import pytest
from msgspec.structs import replace

from farflung.envs.base import Environment, Grade, Split, Stratified, strata_of
from farflung.envs.mixture import Mixture
from farflung.envs.named import NamedEnvironment
from farflung.envs.registry import load_environment
from farflung.errors import UserError
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

ARGS: dict[str, EnvArg] = {
    "members": "short=sort-digits, mod-sum long=sort-digits",
    "short.num_digits": 2,
    "short.weight": 3,
    "mod-sum.num_digits": 3,
    "long.num_digits": 4,
}
SPLITS: tuple[Split, Split] = ("train", "heldout")


def mixture() -> Mixture:
    return Mixture(7, ARGS, load_environment)


def label(task: Task) -> str:
    return task.task_id.partition("/")[0]


def test_members_have_their_share_of_any_first_tasks_of_both_splits() -> None:
    env = mixture()
    for split in SPLITS:
        counts = {"short": 0, "mod-sum": 0, "long": 0}
        for index in range(env.num_heldout_tasks if split == "heldout" else 100):
            counts[label(env.task(split, index))] += 1
            for name, weight in (("short", 3), ("mod-sum", 1), ("long", 1)):
                assert abs(counts[name] - (index + 1) * weight / 5) < 1


def test_every_task_of_every_member_is_there_once() -> None:
    args: dict[str, EnvArg] = {"members": "sort-digits mod-sum", "sort-digits.num_digits": 2, "mod-sum.num_digits": 3}
    env = Mixture(7, args, load_environment)
    members = {
        name: load_environment(name, 7, {"num_digits": digits}) for name, digits in (("sort-digits", 2), ("mod-sum", 3))
    }
    found = {env.task("train", index).task_id for index in range(env.num_tasks)}
    assert found == {f"{name}/train/{index}" for name, member in members.items() for index in range(member.num_tasks)}
    assert env.num_tasks == len(found)
    with pytest.raises(IndexError):
        env.task("train", env.num_tasks)


def test_a_task_is_the_members_own_under_the_name_of_the_mixture() -> None:
    env = mixture()
    member = load_environment("sort-digits", 7, {"num_digits": 2})
    index = next(index for index in range(9) if label(env.task("train", index)) == "short")
    task = env.task("train", index)
    own = member.task("train", 0)
    assert task == replace(own, env="mixture", task_id=f"short/{own.task_id}")
    assert env.grade(task, own.answer) == Grade(reward=1.0, correct=1.0)
    assert env.grade(task, "x") == member.grade(own, "x")
    assert env.demonstration(task, 3) == own.answer


def test_budgets_are_those_of_the_task_or_none() -> None:
    env = mixture()
    assert env.target_lengths == (2, 3)
    for index in range(10):
        for target in (0, *env.target_lengths):
            task = env.task("train", index, target)
            assert task.target_length == (target if label(task) == "mod-sum" else 0)
    with pytest.raises(ValueError, match="must be 0 or one of"):
        env.task("train", 0, 9)


def test_a_member_that_offers_other_budgets_gets_one_of_its_own() -> None:
    args: dict[str, EnvArg] = {"members": "a=mod-sum b=mod-sum", "a.num_digits": 2, "b.num_digits": 6}
    env = Mixture(0, args, load_environment)
    assert env.target_lengths == (1, 2, 3, 4, 5, 6)
    asked = {label(task): [] for task in islice((env.task("train", index) for index in range(2)), 2)}
    for index in range(2):
        for target in env.target_lengths:
            task = env.task("train", index, target)
            asked[label(task)].append(task.target_length)
    assert asked == {"a": [1, 2, 1, 2, 1, 2], "b": [3, 4, 3, 4, 5, 6]}


def test_the_alphabet_covers_every_member() -> None:
    spelled = set(mixture().alphabet() or "")
    for name, digits in (("sort-digits", 4), ("mod-sum", 3)):
        assert set(load_environment(name, 7, {"num_digits": digits}).alphabet() or "") <= spelled
    open_vocabulary = Mixture(0, {"members": "sort-digits reasoning-gym:letter_counting"}, load_environment)
    assert open_vocabulary.alphabet() is None


def test_roles_see_the_strata_through_the_wrapper_that_names_faults() -> None:
    env: Environment = NamedEnvironment(mixture())
    assert isinstance(env, Stratified)
    assert strata_of(env) == mixture().strata
    assert [(part.name, part.weight) for part in strata_of(env)] == [("short", 3), ("mod-sum", 1), ("long", 1)]
    assert strata_of(load_environment("sort-digits", 0, {})) == ()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "has 0 members: from 1 to 64, for example members"),
        ({"members": 3}, "has 0 members"),
        ({"members": "sort-digits sort-digits"}, "member 'sort-digits'.*no other member has"),
        ({"members": "a/b=sort-digits"}, "member 'a/b=sort-digits'"),
        ({"members": "a=mixture"}, "cannot be a member of itself"),
        ({"members": "sort-digit"}, "unknown environment.*did you mean sort-digits"),
        ({"members": "sort-digits", "num_digits": 3}, "argument num_digits.*MEMBER.ARGUMENT.*sort-digits"),
        ({"members": "sort-digits", "mod-sum.base": 3}, "argument mod-sum.base"),
        ({"members": "sort-digits", "sort-digits.digits": 3}, "unknown setting digits.*sort-digits"),
        ({"members": "sort-digits", "sort-digits.weight": 0}, "weight of member sort-digits.* is 0: a whole number"),
        ({"members": "sort-digits", "sort-digits.weight": 0.5}, "is 0.5"),
        ({"members": "sort-digits", "sort-digits.weight": True}, "is True"),
        ({"members": "sort-digits", "sort-digits.weight": 10_001}, "sum to 10001"),
    ],
)
def test_wrong_members_are_answered_with_value_rule_and_fix(args: dict[str, EnvArg], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_environment("mixture", 0, args)
