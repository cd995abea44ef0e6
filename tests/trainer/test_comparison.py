"""Which rollouts are compared with each other, and what each learns from."""

from typing import Any

import numpy as np
import pytest

from farflung.rl.samples import training_samples
from farflung.rl.types import RolloutGroup, Turn
from farflung.trainer.comparison import comparison_groups, do_spans_fit
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.verdict import RewardResult


def rollout(sample: int, num_tokens: int = 10) -> Rollout:
    return Rollout(
        env="e",
        task_id="train/0",
        group=1,
        sample=sample,
        prompt_tokens=np.array([5, 6], np.int32),
        completion_tokens=np.arange(num_tokens, dtype=np.int32),
        logprobs=np.full(num_tokens, -1.0, np.float32),
        stop_reason=StopReason.EOS,
        policy_version=3,
    )


def result(sample: int, reward: float | None, **changes: Any) -> RewardResult:
    return RewardResult(group=1, sample=sample, reward=reward, **changes)


def groups(results: list[RewardResult], num_agents: int = 1) -> tuple[RolloutGroup, ...]:
    rollouts = [rollout(each.sample) for each in results]
    return comparison_groups(7, rollouts, results, num_agents=num_agents, task_index=4)


def test_rollouts_of_one_turn_have_no_turns_as_ever() -> None:
    (group,) = groups([result(0, 1.0), result(1, 0.0)])
    assert group.turns is None
    assert (group.slot, group.group, group.agent, group.task_index, group.rewards) == (7, 1, 0, 4, (1.0, 0.0))


def test_each_agent_is_compared_with_the_same_agent_of_other_episodes() -> None:
    results = [result(sample, float(sample), correct=float(sample % 2)) for sample in range(6)]
    first, second = groups(results, num_agents=2)
    assert (first.agent, first.rewards, second.agent, second.rewards) == (0, (0.0, 2.0, 4.0), 1, (1.0, 3.0, 5.0))
    assert second.correct == (1.0, 1.0, 1.0)
    assert [row.sample for row in second.rollouts] == [1, 3, 5]


def test_an_outcome_gives_every_turn_of_an_episode_the_same_advantage() -> None:
    spans = [((0, 3), (5, 8), (9, 10)), ((0, 4), (6, 10)), ((0, 10),)]
    results = [result(sample, float(sample), spans=own) for sample, own in enumerate(spans)]
    samples = training_samples(groups(results))
    advantages = [-1.0, 0.0, 1.0]
    for sample, own, advantage in zip(samples, spans, advantages, strict=True):
        mask = np.zeros(10, dtype=bool)
        for start, end in own:
            mask[start:end] = True
        assert sample.loss_mask.tolist() == mask.tolist()
        assert sample.advantages[mask].tolist() == [advantage] * int(mask.sum())
        assert not sample.advantages[~mask].any()


def test_rewards_of_turns_are_returns_compared_turn_by_turn() -> None:
    spans = ((0, 3), (5, 8))
    results = [
        result(0, 1.0, spans=spans, turn_rewards=(0.0, 1.0)),
        result(1, 1.0, spans=spans, turn_rewards=(1.0, 0.0)),
        result(2, 0.0, spans=spans[:1], turn_rewards=(0.0,)),
    ]
    (group,) = groups(results)
    assert group.turns is not None
    assert group.turns[0] == (Turn(start=0, end=3, reward=0.0), Turn(start=5, end=8, reward=1.0))
    first, second, third = training_samples([group])
    assert first.advantages[[0, 5]].tolist() == pytest.approx([1 / 3, 0.5])
    assert second.advantages[[0, 5]].tolist() == pytest.approx([1 / 3, -0.5])
    assert third.advantages[0] == pytest.approx(-2 / 3)
    assert third.loss_mask.tolist() == [True] * 3 + [False] * 7


def test_what_has_no_reward_has_no_turns_and_no_sample() -> None:
    results = [
        result(0, None, spans=((0, 3), (5, 8))),
        result(1, 1.0, spans=((0, 10),)),
        result(2, 0.0, spans=((0, 2), (2, 10))),
    ]
    (group,) = groups(results)
    assert group.turns == (
        (), (Turn(start=0, end=10, reward=1.0),), (Turn(start=0, end=10, reward=0.0),)
    )  # fmt: skip
    assert [sample.sample for sample in training_samples([group])] == [1, 2]


def test_spans_beyond_the_completion_do_not_fit() -> None:
    assert do_spans_fit(rollout(0), result(0, 1.0, spans=((0, 10),)))
    assert not do_spans_fit(rollout(0), result(0, 1.0, spans=((0, 3), (8, 11))))
