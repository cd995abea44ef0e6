import math

import numpy as np
import pytest

from farflung.rl.samples import training_samples
from farflung.rl.signal import NoLearning, why_no_learning
from farflung.rl.types import RolloutGroup
from farflung.wire.rollout import Rollout, StopReason

Scores = list[float | None]


def a_group(rewards: Scores, correct: Scores | None = None, lengths: list[int] | None = None) -> RolloutGroup:
    lengths = lengths or [2] * len(rewards)
    rollouts = tuple(
        Rollout(
            env="toy",
            task_id="0",
            group=0,
            sample=sample,
            prompt_tokens=np.array([1], dtype=np.int32),
            completion_tokens=np.full(length, 2, dtype=np.int32),
            logprobs=np.full(length, -0.5, dtype=np.float32),
            stop_reason=StopReason.EOS,
            policy_version=0,
        )
        for sample, length in enumerate(lengths)
    )
    return RolloutGroup(
        slot=0, group=0, task_id="0", rollouts=rollouts, rewards=tuple(rewards), correct=tuple(correct or rewards)
    )


def test_a_group_with_different_rewards_can_be_learned_from() -> None:
    assert why_no_learning(a_group([0.0, 1.0])) is None


def test_a_group_with_equal_rewards_has_no_signal() -> None:
    assert why_no_learning(a_group([1.0, 1.0, 1.0])) is NoLearning.NO_SIGNAL
    assert why_no_learning(a_group([1.0, 1.0, 1.0]), tolerance=0.0) is NoLearning.NO_SIGNAL


def test_a_solved_group_with_a_length_penalty_has_no_signal() -> None:
    """Case L17."""
    group = a_group([0.9, 0.6], correct=[1.0, 1.0], lengths=[1, 4])
    assert why_no_learning(group) is NoLearning.NO_SIGNAL


def test_a_solved_group_is_kept_where_the_length_is_an_objective() -> None:
    group = a_group([0.9, 0.6], correct=[1.0, 1.0], lengths=[1, 4])
    assert why_no_learning(group, judged_on="total") is None


def test_a_group_whose_shaping_cancels_the_reward_has_no_signal() -> None:
    assert why_no_learning(a_group([0.5, 0.5], correct=[1.0, 0.0])) is NoLearning.NO_SIGNAL


def test_without_unshaped_rewards_the_total_decides() -> None:
    assert why_no_learning(a_group([0.2, 0.7], correct=[None, None])) is None
    assert why_no_learning(a_group([0.2, 0.7, 0.1], correct=[1.0, 1.0, None])) is None


def test_rounding_is_no_signal() -> None:
    third = float(np.float32(1 / 3))
    assert why_no_learning(a_group([1 / 3, third])) is NoLearning.NO_SIGNAL
    assert why_no_learning(a_group([1 / 3, third]), tolerance=0.0) is None


@pytest.mark.parametrize("rewards", [[None, None], [1.0, None], [1.0, math.nan]])
def test_a_group_with_fewer_than_two_rewards_is_ungradable(rewards: Scores) -> None:
    assert why_no_learning(a_group(rewards)) is NoLearning.UNGRADABLE


def test_what_cannot_be_graded_makes_no_difference_of_rewards() -> None:
    assert why_no_learning(a_group([1.0, 1.0, None], correct=[1.0, 1.0, 0.0])) is NoLearning.NO_SIGNAL


def test_a_filtered_group_adds_no_sample() -> None:
    """Case 47: no gradient at all from it, whatever terms the objective has."""
    groups = [a_group([1.0, 1.0]), a_group([1.0, 0.0])]
    samples = training_samples([group for group in groups if why_no_learning(group) is None])
    assert [float(sample.advantages[0]) for sample in samples] == [0.5, -0.5]


def test_rewards_must_pair_up_with_rollouts() -> None:
    with pytest.raises(ValueError, match="2 rollouts, 3 rewards"):
        a_group([1.0, 0.0, 1.0], lengths=[1, 1])
