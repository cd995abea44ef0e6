"""Length rewards and the soft overlong punishment."""

import math
from typing import Any, get_args

import pytest

from farflung.rl.length_reward import LengthReward, length_reward
from farflung.rl.overlong import overlong_penalty


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
