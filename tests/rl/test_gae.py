import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.gae import gae

ALL = np.ones((1, 3), dtype=np.bool_)


def test_worked_numbers() -> None:
    """Deltas [0.3, 0.1, 0.4]."""
    advantages, returns = gae(np.array([[0.0, 0, 1]]), np.array([[0.2, 0.5, 0.6]]), ALL, gamma=1.0, lam=0.95)
    assert advantages[0].tolist() == pytest.approx([0.756, 0.48, 0.4])
    assert returns[0].tolist() == pytest.approx([0.956, 0.98, 1.0])


def test_with_lam_1_the_return_is_the_discounted_reward() -> None:
    _, returns = gae(np.array([[0.0, 1.0, 2.0]]), np.array([[9.0, -3.0, 0.5]]), ALL, gamma=0.5, lam=1.0)
    assert returns[0].tolist() == pytest.approx([1.0, 2.0, 2.0])


def test_with_lam_0_the_advantage_is_one_step() -> None:
    advantages, _ = gae(np.array([[0.0, 0, 1]]), np.array([[0.2, 0.5, 0.6]]), ALL, gamma=1.0, lam=0.0)
    assert advantages[0].tolist() == pytest.approx([0.3, 0.1, 0.4])


@given(st.lists(st.booleans(), max_size=4), st.lists(st.booleans(), max_size=4), st.sampled_from([7.0, math.nan]))
def test_masked_tokens_are_passed_over_wherever_they_stand(before: list[bool], after: list[bool], junk: float) -> None:
    """Case L8's rule for values and rewards: tool output between the policy's tokens, and padding behind."""
    gap, padding = len(before), len(after)
    mask = np.array([[True, *[False] * gap, True, True, *[False] * padding]])
    rewards, values = np.full(mask.shape, junk), np.full(mask.shape, junk)
    rewards[mask], values[mask] = [0.0, 0, 1], [0.2, 0.5, 0.6]
    advantages, returns = gae(rewards, values, mask)
    assert advantages[mask].tolist() == pytest.approx([0.756, 0.48, 0.4])
    assert returns[mask].tolist() == pytest.approx([0.956, 0.98, 1.0])
    assert (advantages[~mask] == 0).all()
    assert (returns[~mask] == 0).all()


def test_rollouts_do_not_see_each_other() -> None:
    rewards = np.array([[0.0, 0, 1], [5.0, 0, 0]])
    values = np.array([[0.2, 0.5, 0.6], [1.0, 1.0, 1.0]])
    both, _ = gae(rewards, values, np.ones((2, 3), dtype=np.bool_))
    assert both[0].tolist() == pytest.approx([0.756, 0.48, 0.4])
    alone, _ = gae(rewards[1:], values[1:], ALL)
    assert both[1].tolist() == alone[0].tolist()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"all must be \[B, T\] alike"):
        gae(np.zeros((1, 3)), np.zeros((1, 2)), ALL)
    with pytest.raises(ValueError, match=r"gamma is 1\.1"):
        gae(np.zeros((1, 3)), np.zeros((1, 3)), ALL, gamma=1.1)
