import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.advantage import batch_advantages, group_advantages

REWARDS = [1.0, 0.0, 0.0, 1.0, 0.0]  # mean 0.4, sample std 0.54772

finite = st.floats(-100, 100, allow_nan=False)


def test_without_normalisation_the_advantage_is_the_distance_from_the_mean() -> None:
    np.testing.assert_allclose(group_advantages(REWARDS), [0.6, -0.4, -0.4, 0.6, -0.4])


def test_std_is_the_sample_std() -> None:
    advantages = group_advantages(REWARDS, normalize="std", eps=0.0)
    np.testing.assert_allclose(advantages, [1.0954, -0.7303, -0.7303, 1.0954, -0.7303], atol=5e-5)


def test_eps_is_added_to_the_std() -> None:
    advantages = group_advantages([0.0, 1.0], normalize="std", eps=1e-4)
    np.testing.assert_allclose(advantages, [-0.5 / (math.sqrt(0.5) + 1e-4), 0.5 / (math.sqrt(0.5) + 1e-4)])


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
@pytest.mark.parametrize("normalize", ["none", "std"])
def test_what_is_no_reward_has_no_place_in_mean_and_std(missing: float | None, normalize: str) -> None:
    advantages = group_advantages([1.0, missing, 0.0, 0.0, 1.0, 0.0], normalize=normalize)
    np.testing.assert_array_equal(
        np.delete(advantages, 1), group_advantages([1.0, 0.0, 0.0, 1.0, 0.0], normalize=normalize)
    )
    assert advantages[1] == 0.0


def test_a_reward_of_zero_is_a_reward() -> None:
    np.testing.assert_allclose(group_advantages([0.0, 1.0]), [-0.5, 0.5])


@pytest.mark.parametrize("rewards", [[None, None], [None, 1.0]])
@pytest.mark.parametrize("normalize", ["none", "std", "batch_std"])
def test_a_group_with_fewer_than_two_rewards_has_no_advantage_and_no_nan(
    rewards: list[float | None], normalize: str
) -> None:
    np.testing.assert_array_equal(batch_advantages([rewards], normalize=normalize)[0], [0.0, 0.0])


@pytest.mark.parametrize("rewards", [[], [1.0]])
def test_a_group_of_one_is_refused(rewards: list[float]) -> None:
    """Case L12, case 45."""
    with pytest.raises(ValueError, match=r"group of . has no baseline.*group size of at least 2"):
        group_advantages(rewards)


def test_an_unknown_normalisation_is_refused_with_the_valid_names() -> None:
    """Case L14."""
    with pytest.raises(ValueError, match=r"'bacth'.*none, std, batch_std"):
        batch_advantages([REWARDS], normalize="bacth")


def test_batch_std_of_a_single_group_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_advantages"):
        group_advantages(REWARDS, normalize="batch_std")


def test_std_gives_every_group_unit_spread() -> None:
    """Case L10, case 46."""
    narrow, wide = batch_advantages([[0.0, 0.1], [0.0, 10.0]], normalize="std", eps=0.0)
    assert narrow.std(ddof=1) == pytest.approx(1.0)
    assert wide.std(ddof=1) == pytest.approx(1.0)


def test_batch_std_keeps_the_relation_between_groups() -> None:
    """Case L10, case 46."""
    narrow, wide = batch_advantages([[0.0, 0.1], [0.0, 10.0]], normalize="batch_std", eps=0.0)
    batch_std = np.std([0.0, 0.1, 0.0, 10.0], ddof=1)
    np.testing.assert_allclose(narrow, [-0.05 / batch_std, 0.05 / batch_std])
    np.testing.assert_allclose(wide / narrow, [100.0, 100.0])


@given(st.lists(finite, min_size=2, max_size=16), st.sampled_from(["none", "std"]))
def test_advantages_of_a_group_add_up_to_zero(rewards: list[float], normalize: str) -> None:
    advantages = group_advantages(rewards, normalize=normalize)
    assert advantages.sum() == pytest.approx(0.0, abs=1e-9 * (1 + np.abs(advantages).max()))


@given(st.floats(-10, 10), st.integers(2, 16))
def test_equal_rewards_have_no_advantage_even_when_divided_by_their_std(reward: float, size: int) -> None:
    np.testing.assert_allclose(group_advantages([reward] * size, normalize="std"), np.zeros(size), atol=1e-9)
