"""Length rewards and the soft overlong punishment."""

import math
from typing import Any, get_args

import numpy as np
import pytest

from farflung.rl.length_reward import LengthReward, length_reward
from farflung.rl.overlong import overlong_penalty
from farflung.rl.shaping import NO_SHAPING, ShapingParams, with_length_reward, with_overlong_penalty
from farflung.rl.types import RolloutGroup, Turn
from farflung.wire.rollout import Rollout, StopReason


@pytest.mark.parametrize(
    ("kind", "num_tokens", "expected"),
    [
        ("exact", 2000, 1.0),
        ("exact", 3000, 0.7),
        ("exact", 1000, 0.7),
        ("max", 2000, 0.5),
        ("max", 3000, 0.2),
        ("max", 9000, 0.0),
        ("max", 100, 1.0),
        ("clip", 2000, 1.0),
        ("clip", 2001, 0.0),
    ],
)
def test_length_rewards_by_hand(kind: LengthReward, num_tokens: int, expected: float) -> None:
    """A solved task with target 2000 and 0.0003 a token."""
    assert length_reward(1.0, num_tokens=num_tokens, target_tokens=2000, kind=kind) == pytest.approx(expected)


@pytest.mark.parametrize("kind", get_args(LengthReward))
def test_an_unsolved_task_earns_nothing_by_its_length(kind: LengthReward) -> None:
    assert length_reward(0.0, num_tokens=1500, target_tokens=2000, kind=kind) <= 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "least"}, "must be one of exact, max, clip"),
        ({"target_tokens": 0}, "target_tokens is 0"),
        ({"alpha": 0.0}, r"alpha 0\.0"),
        ({"alpha": math.nan}, "alpha nan"),
    ],
)
def test_length_parameters_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"num_tokens": 5, "target_tokens": 5, "kind": "exact"} | change
    with pytest.raises(ValueError, match=message):
        length_reward(1.0, **arguments)


@pytest.mark.parametrize(
    ("num_tokens", "penalty"), [(1, 0.0), (16384, 0.0), (17408, -0.25), (18432, -0.5), (20480, -1.0), (99999, -1.0)]
)
def test_the_overlong_punishment_by_hand(num_tokens: int, penalty: float) -> None:
    """DAPO's numbers: maximum 20480, buffer 4096."""
    assert overlong_penalty(num_tokens, max_length_tokens=20480, buffer_tokens=4096) == penalty
    assert overlong_penalty(num_tokens, max_length_tokens=20480, buffer_tokens=4096, factor=2.0) == 2 * penalty


@pytest.mark.parametrize(("buffer_tokens", "factor"), [(0, 1.0), (11, 1.0), (5, -1.0), (5, math.nan)])
def test_overlong_parameters_out_of_range_are_refused(buffer_tokens: int, factor: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        overlong_penalty(5, max_length_tokens=10, buffer_tokens=buffer_tokens, factor=factor)


# -- of groups ----------------------------------------------------------------------------------------------------


def a_group(rewards: list[float | None], lengths: list[int], targets: list[int], turns: Any = None) -> RolloutGroup:
    rollouts = tuple(
        Rollout(
            env="toy",
            task_id="7",
            group=0,
            sample=sample,
            prompt_tokens=np.array([5], dtype=np.int32),
            completion_tokens=np.zeros(length, dtype=np.int32),
            logprobs=np.zeros(length, dtype=np.float32),
            stop_reason=StopReason.EOS,
            policy_version=0,
            target_length=target,
        )
        for sample, (length, target) in enumerate(zip(lengths, targets, strict=True))
    )
    return RolloutGroup(
        slot=0, group=0, task_id="7", rollouts=rollouts, rewards=tuple(rewards), correct=tuple(rewards), turns=turns
    )


@pytest.mark.parametrize(
    ("kind", "weight", "expected"),
    [
        ("exact", 1.0, [1 - 0.1 * 2, 0 - 0.1 * 1]),
        ("exact", 0.5, [1 - 0.1, 0 - 0.05]),
        ("max", 1.0, [0.3, 0.0]),
        ("max", 0.5, [0.65, 0.0]),
        ("clip", 1.0, [0.0, 0.0]),
        ("clip", 0.25, [0.75, 0.0]),
    ],
)
def test_a_length_reward_takes_its_share_of_the_reward(
    kind: LengthReward, weight: float, expected: list[float]
) -> None:
    """Lengths 6 and 3, target 4, 0.1 a token."""
    params = ShapingParams(length=kind, alpha=0.1, weight=weight)
    shaped = with_length_reward(a_group([1.0, 0.0], [6, 3], [4, 4]), params)
    assert shaped.rewards == pytest.approx(expected)
    assert shaped.correct == (1.0, 0.0)


def test_what_asks_for_no_length_and_what_is_no_reward_stay_as_they_are() -> None:
    params = ShapingParams(length="exact", alpha=0.1, overlong_buffer_tokens=1, max_length_tokens=100)
    group = a_group([1.0, None, math.nan], [6, 6, 6], [0, 4, 4])
    shaped = with_overlong_penalty(with_length_reward(group, params), params)
    assert shaped.rewards[:2] == (1.0, None)
    assert shaped.rewards[2] is not None
    assert math.isnan(shaped.rewards[2])
    assert with_length_reward(group, NO_SHAPING) is with_overlong_penalty(group, NO_SHAPING) is group


def test_the_overlong_punishment_is_added_and_falls_on_the_last_turn() -> None:
    """Limit 10, buffer 4: 8 tokens cost half, 10 all of it."""
    params = ShapingParams(overlong_buffer_tokens=4, overlong_factor=0.6, max_length_tokens=10)
    turns = (
        (Turn(start=0, end=2, reward=0.25), Turn(start=3, end=8, reward=0.75)),
        (Turn(start=0, end=10, reward=1.0),),
        (Turn(start=0, end=1, reward=0.0),),
    )
    shaped = with_overlong_penalty(a_group([1.0, 1.0, 0.0], [8, 10, 6], [0, 0, 0], turns), params)
    assert shaped.rewards == pytest.approx((0.7, 0.4, 0.0))
    assert shaped.turns is not None
    assert [[turn.reward for turn in each] for each in shaped.turns] == [
        pytest.approx([0.25, 0.45]),
        pytest.approx([0.4]),
        [0.0],
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": 0.0}, "weight of the length reward is 0.0"),
        ({"overlong_buffer_tokens": 5, "max_length_tokens": 4}, "buffer_tokens is 5 with a limit of 4"),
    ],
)
def test_shaping_out_of_range_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShapingParams(**change)
