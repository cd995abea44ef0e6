"""Advantage estimators beside those of `test_advantage.py`."""

import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.estimators import Estimator, estimate_advantages
from farflung.rl.reinforce_pp import reinforce_pp_advantages, returns_with_kl
from farflung.rl.rloo import rloo_advantages
from farflung.rl.whiten import Moments, whiten

REWARDS: list[float | None] = [1.0, 0.0, 0.0, 1.0, 0.0]
ALL_THREE = np.ones(3, dtype=np.bool_)


def by_hand(values: list[float]) -> list[float]:
    mean = sum(values) / len(values)
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return [(value - mean) / std for value in values]


def test_rloo_by_hand() -> None:
    """The table's 0.75 and -0.5; each is the reward minus the mean of the others."""
    (advantages,) = rloo_advantages([REWARDS])
    assert advantages.tolist() == pytest.approx([0.75, -0.5, -0.5, 0.75, -0.5])
    (with_missing,) = rloo_advantages([[1.0, None, 0.0, math.nan]])
    assert with_missing.tolist() == [1.0, 0.0, -1.0, 0.0]
    (one_graded,) = rloo_advantages([[1.0, None]])
    assert one_graded.tolist() == [0.0, 0.0]


def test_an_estimator_that_needs_a_group_refuses_a_group_of_one() -> None:
    """Case L12."""
    for estimator in ("none", "std", "batch_std", "rloo", "reinforce_pp_baseline"):
        with pytest.raises(ValueError, match="a group of 1 has no baseline"):
            estimate_advantages([[1.0]], [[3]], estimator)
    first, second = estimate_advantages([[1.0], [0.0]], [[3], [3]], "reinforce_pp")
    assert first == pytest.approx(-second)


def test_reinforce_pp_whitens_over_tokens() -> None:
    """Two groups; a rollout counts once per token, one without a reward not at all."""
    groups: list[list[float | None]] = [[1.0, 0.0, None], [3.0, 0.0]]
    advantages = reinforce_pp_advantages(groups, [[1, 2, 9], [2, 1]], has_baseline=False)
    a, b, _, c, c2, d = by_hand([1.0, 0.0, 0.0, 3.0, 3.0, 0.0])
    assert c == c2
    assert advantages[0].tolist() == pytest.approx([a, b, 0.0])
    assert advantages[1].tolist() == pytest.approx([c, d])


def test_the_baseline_variant_subtracts_the_group_s_mean_first() -> None:
    advantages = reinforce_pp_advantages([[1.0, 0.0], [3.0, 1.0]], [[1, 1], [1, 1]], has_baseline=True)
    assert np.concatenate(advantages).tolist() == pytest.approx(by_hand([0.5, -0.5, 1.0, -1.0]))


@pytest.mark.parametrize("has_baseline", [True, False])
def test_equal_rewards_have_advantages_of_0(has_baseline: bool) -> None:
    (advantages,) = reinforce_pp_advantages([[0.1, 0.1, 0.1]], [[1, 2, 3]], has_baseline=has_baseline)
    assert advantages.tolist() == pytest.approx([0, 0, 0], abs=1e-7)


def test_returns_subtract_the_kl_that_is_still_to_come() -> None:
    returns = returns_with_kl(1.0, np.array([0.1, 0.2, 0.3]), ALL_THREE, beta=0.5)
    assert returns.tolist() == pytest.approx([1 - 0.3, 1 - 0.25, 1 - 0.15])


@pytest.mark.parametrize("kl", [1e6, math.nan])
def test_kl_on_masked_tokens_does_not_enter_returns(kl: float) -> None:
    """Case L8."""
    mask = np.array([True, False, True])
    returns = returns_with_kl(1.0, np.array([0.1, kl, 0.3]), mask, beta=0.5)
    assert returns[mask].tolist() == pytest.approx([1 - 0.2, 1 - 0.15])


@pytest.mark.parametrize("estimator", get_args(Estimator))
def test_every_estimator_runs(estimator: Estimator) -> None:
    """Case L14."""
    (advantages,) = estimate_advantages([REWARDS], [[2] * 5], estimator)
    assert advantages.shape == (5,)
    assert advantages[0] > 0 > advantages[1]
    assert estimate_advantages([], [], estimator) == []


def test_worked_numbers_of_the_group_estimators() -> None:
    (std,) = estimate_advantages([REWARDS], [[1] * 5], "std", eps=0.0)
    assert std[:2].tolist() == pytest.approx([1.0954, -0.7303], abs=5e-5)
    (none,) = estimate_advantages([REWARDS], [[1] * 5], "none")
    assert none[:2].tolist() == pytest.approx([0.6, -0.4])


def test_an_unknown_estimator_fails_with_the_list() -> None:
    """Case L14."""
    unknown: Any = "maxrl"
    with pytest.raises(ValueError, match="'maxrl': it must be one of none, std, batch_std, rloo"):
        estimate_advantages([REWARDS], [[1] * 5], unknown)


# -- whitening ----------------------------------------------------------------------------------------------------

value = st.floats(-1e3, 1e3)


@given(st.lists(value, min_size=2, max_size=20), st.integers(0, 20))
def test_shards_together_are_whitened_as_one(values: list[float], cut: int) -> None:
    """Case L16: mean 0 and std 1 over all tokens of all ranks."""
    whole = np.array(values)
    shards = [whole[:cut], whole[cut:]]
    moments = Moments.of(shards[0], np.isfinite(shards[0])) + Moments.of(shards[1], np.isfinite(shards[1]))
    assert moments.std == pytest.approx(whole.std(ddof=1), abs=1e-9)
    whitened = np.concatenate([whiten(shard, np.isfinite(shard), moments) for shard in shards])
    assert whitened.mean() == pytest.approx(0, abs=1e-4)
    if whole.std() > 1e-3:
        assert whitened.std(ddof=1) == pytest.approx(1, abs=1e-4)


def test_masked_values_neither_count_nor_appear() -> None:
    """Case L12's second half too: a B x T matrix with B != T is whitened as a whole."""
    values = np.array([[1.0, 2.0, math.nan], [3.0, math.inf, 6.0]])
    mask = np.isfinite(values)
    whitened = whiten(values, mask, Moments.of(values, mask))
    assert whitened[mask].tolist() == pytest.approx(by_hand([1.0, 2.0, 3.0, 6.0]))
    assert whitened[~mask].tolist() == [0, 0]


def test_nothing_has_no_moments() -> None:
    nothing = Moments.of(np.zeros(3), ~ALL_THREE)
    assert nothing + nothing == Moments(count=0, mean=0.0, squares=0.0)
    assert nothing.std == 0
