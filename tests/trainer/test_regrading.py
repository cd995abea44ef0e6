"""The trainer's own look at rewards: nobody is believed who may be looked at at any time."""

from dataclasses import replace

import pytest

from farflung.envs.base import Grade
from farflung.errors import OurFault
from farflung.rl.types import RolloutGroup
from farflung.trainer.regrading import Regrader
from farflung.wire.task import Task
from tiny_pool import description, environment, pool_spec, sampled_groups, tiny_policy

POOL = pool_spec()


def regrader(share: float = 1.0, draw: float = 0.5) -> Regrader:
    return Regrader(environment(), description().tokenizer, share, lambda: draw)


def groups(slot: int = 2) -> list[RolloutGroup]:
    """With the rewards that they have."""
    found = []
    for number, group in enumerate(sampled_groups(tiny_policy(), POOL, slot=slot)):
        index = slot * POOL.groups_per_slot + number
        task = environment().task("train", index)
        rewards = tuple(
            environment().grade(task, description().tokenizer.decode(row.completion_tokens.tolist())).reward
            for row in group.rollouts
        )
        found.append(replace(group, rewards=rewards, correct=rewards, task_index=index))
    return found


def lied_about(made: list[RolloutGroup], reward: float | None) -> list[RolloutGroup]:
    first, *rest = made[1].rewards
    changed = (reward, *rest)
    assert first != reward
    return [made[0], replace(made[1], rewards=changed, correct=changed)]


def test_true_rewards_have_no_problem_and_one_false_reward_is_told_with_both_values() -> None:
    looking = regrader()
    assert looking.problem(groups()) is None
    told = looking.problem(lied_about(groups(), 0.125))
    assert told is not None
    assert "(1, 0)" in told
    assert "0.125" in told
    assert looking.num_regraded == 2


def test_a_slot_is_looked_at_with_the_share_as_probability() -> None:
    lie = lied_about(groups(), 0.125)
    assert regrader(share=0.5, draw=0.499).problem(lie) is not None
    assert regrader(share=0.5, draw=0.5).problem(lie) is None
    assert regrader(share=0.0, draw=0.0).problem(lie) is None


def test_what_validators_could_not_grade_is_not_held_against_them() -> None:
    assert regrader().problem(lied_about(groups(), None)) is None


def test_trouble_of_our_own_grader_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, task: Task, completion: str) -> Grade:
        raise OurFault("environment sort-digits failed")

    lie = lied_about(groups(), 0.125)
    monkeypatch.setattr(type(environment()), "grade", broken)
    assert regrader().problem(lie) is None
