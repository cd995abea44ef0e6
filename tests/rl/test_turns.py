import math
from dataclasses import replace

import numpy as np
import pytest

from farflung.rl.samples import training_samples
from farflung.rl.turns import at_tokens, by_turn, returns_to_go
from farflung.rl.types import RolloutGroup, Turn
from farflung.wire.rollout import Rollout, StopReason


def a_rollout(sample: int, length: int) -> Rollout:
    return Rollout(
        env="toy",
        task_id="7",
        group=0,
        sample=sample,
        prompt_tokens=np.array([5], dtype=np.int32),
        completion_tokens=np.arange(length, dtype=np.int32),
        logprobs=np.full(length, -1.0, dtype=np.float32),
        stop_reason=StopReason.EOS,
        policy_version=0,
    )


def a_group(lengths: list[int], turns: list[list[tuple[int, int, float]]]) -> RolloutGroup:
    made = tuple(tuple(Turn(start=start, end=end, reward=reward) for start, end, reward in each) for each in turns)
    totals = tuple(sum(turn.reward for turn in each) for each in made)
    rollouts = tuple(a_rollout(sample, length) for sample, length in enumerate(lengths))
    return RolloutGroup(slot=0, group=0, task_id="7", rollouts=rollouts, rewards=totals, correct=totals, turns=made)


TWO_TURNS = [[(0, 2, 1.0), (3, 4, 0.0)], [(0, 1, 0.0), (1, 4, 0.5)]]
"""Returns 1, 0 and 0.5, 0.5; token 2 of the first rollout is a tool's."""


def test_stepwise_advantages_reach_the_tokens_of_their_own_turn_and_no_others() -> None:
    """Case L7."""
    first, second = training_samples([a_group([4, 5], TWO_TURNS)])
    assert first.advantages.tolist() == [0.25, 0.25, 0.0, -0.25]
    assert first.loss_mask.tolist() == [True, True, False, True]
    assert second.advantages.tolist() == [-0.25, 0.25, 0.25, 0.25, 0.0]
    assert second.loss_mask.tolist() == [True, True, True, True, False]


def test_a_turn_that_no_other_rollout_reached_is_its_own_baseline() -> None:
    (longer, _) = training_samples([a_group([3, 1], [[(0, 1, 0.0), (2, 3, 1.0)], [(0, 1, 0.0)]])], normalize="rloo")
    assert longer.advantages.tolist() == [1.0, 0.0, 0.0]


def test_one_turn_over_everything_is_an_outcome() -> None:
    group = a_group([3, 2], [[(0, 3, 1.0)], [(0, 2, 0.0)]])
    for normalize in ("none", "std", "batch_std", "rloo", "reinforce_pp", "reinforce_pp_baseline"):
        by_turns = training_samples([group], normalize=normalize)
        by_outcome = training_samples([replace(group, turns=None)], normalize=normalize)
        assert [sample.advantages.tolist() for sample in by_turns] == [
            sample.advantages.tolist() for sample in by_outcome
        ]


def test_whitened_turns_count_their_tokens() -> None:
    """Returns 1 (two tokens), 0 (one), 0.5 (one and three)."""
    samples = training_samples([a_group([4, 5], TWO_TURNS)], normalize="reinforce_pp")
    values = np.array([1, 1, 0, 0.5, 0.5, 0.5, 0.5])
    std = values.std(ddof=1)
    found = np.concatenate([sample.advantages[sample.loss_mask] for sample in samples])
    assert found == pytest.approx((values - values.mean()) / std, rel=1e-6)


def test_a_penalty_is_taken_off_the_turn_that_it_fell_in() -> None:
    """What stands at the tool's token plays no part (case L8)."""
    penalties = {(0, 0, 0): np.array([0.1, 0.2, 9.0, 0.4]), (0, 0, 1): np.zeros(5)}
    first, second = training_samples([a_group([4, 5], TWO_TURNS)], penalties=penalties)
    returns = [(1.0 - 0.3 - 0.4, 0.0 - 0.4), (0.5, 0.5)]
    expected = [(a - b) / 2 for a, b in zip(*returns, strict=True)]
    assert first.advantages.tolist() == pytest.approx([expected[0]] * 2 + [0.0, expected[1]], rel=1e-6)
    assert second.advantages.tolist() == pytest.approx([-expected[0]] + [-expected[1]] * 3 + [0.0], rel=1e-6)


def test_returns_are_discounted_by_turns_and_compared_turn_by_turn() -> None:
    assert returns_to_go([1.0, 0.0, 2.0], 0.5) == [1.5, 1.0, 2.0]
    assert by_turn([[3.0, 1.0], [], [2.0]]) == [[3.0, None, 2.0], [1.0, None, None]]
    values, mask = at_tokens([2.0], [Turn(start=1, end=2, reward=0.0)], 3)
    assert (values.tolist(), mask.tolist()) == ([0.0, 2.0, 0.0], [False, True, False])


@pytest.mark.parametrize(
    "turns", [[(0, 3, 1.0), (2, 4, 1.0)], [(0, 5, 1.0)], [(2, 2, 1.0)], [(2, 3, 0.0), (0, 1, 0.0)]]
)
def test_turns_that_overlap_or_leave_the_completion_are_refused(turns: list[tuple[int, int, float]]) -> None:
    with pytest.raises(ValueError, match="in order, apart, inside it, and none empty"):
        a_group([4], [turns])


def test_a_rollout_without_reward_makes_no_sample_though_it_has_turns() -> None:
    group = a_group([4, 5], TWO_TURNS)
    (only,) = training_samples([replace(group, rewards=(math.nan, 1.0))])
    assert only.sample == 1
    assert only.advantages.tolist() == [0.0] * 5
