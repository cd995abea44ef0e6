"""What each part of a rollout is worth: returns of turns, compared with the same turn of the group's other rollouts.

    R_ik = sum_{j >= k} gamma^(j - k) * (reward_ij - penalty_ij)        turn k of rollout i; penalty: `rl.kl`, or 0
    A_it = estimator over { R_1k, ..., R_Gk } at i                      for every token t of turn k, and no other

A rollout that is judged by its outcome has one turn: the whole completion, or with holes in it where somebody else
spoke. Tokens between turns and in holes (tool output) are not the policy's: no advantage, no loss. A turn that no
other rollout of its group reached is its own baseline: 0 with the estimators that compare within a group.

With KL in the reward REINFORCE++ has a return at every token instead (`rl.reinforce_pp`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from farflung.rl.types import RolloutGroup, Turn

Key = tuple[int, int, int]
"""(slot, group, sample)."""


def turns_of(group: RolloutGroup, penalties: Mapping[Key, NDArray[np.floating]]) -> list[tuple[Turn, ...]]:
    """[G] turns whose rewards are net of penalties; none for a rollout without a finite reward.

    Args:
        penalties: [T] of a rollout, 0 where its tokens play no part; rollouts that are absent have none.
    """
    return [_net(group, index, penalties) for index in range(len(group.rollouts))]


def _net(group: RolloutGroup, index: int, penalties: Mapping[Key, NDArray[np.floating]]) -> tuple[Turn, ...]:
    rollout, reward = group.rollouts[index], group.rewards[index]
    if reward is None or not np.isfinite(reward):
        return ()
    whole = (Turn(start=0, end=len(rollout.completion_tokens), reward=reward),)
    turns = whole if group.turns is None else group.turns[index]
    penalty_T = penalties.get((group.slot, group.group, rollout.sample))
    if penalty_T is None:
        return turns
    return tuple(
        replace(turn, reward=turn.reward - sum(float(penalty_T[start:end].sum()) for start, end in turn.spans))
        for turn in turns
    )


def returns_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """Discounted by turns.

    >>> returns_to_go([1.0, 0.0, 2.0], 0.5)
    [1.5, 1.0, 2.0]
    """
    returns: list[float] = []
    to_go = 0.0
    for reward in reversed(rewards):
        to_go = reward + gamma * to_go
        returns.append(to_go)
    return returns[::-1]


def by_turn(returns: Sequence[Sequence[float]]) -> list[list[float | None]]:
    """[K][G] what is compared with each other: turn k of every rollout, None where it has none.

    >>> by_turn([[3.0, 1.0], [], [2.0]])
    [[3.0, None, 2.0], [1.0, None, None]]
    """
    return [list(column) for column in zip_longest(*returns)]


def at_tokens(
    values: Sequence[float], turns: Sequence[Turn], num_tokens: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(values [T], 0 where the policy drew nothing; mask [T], True where it did)."""
    values_T = np.zeros(num_tokens)
    mask_T = np.zeros(num_tokens, dtype=np.bool_)
    for value, turn in zip(values, turns, strict=True):
        for start, end in turn.spans:
            values_T[start:end] = value
            mask_T[start:end] = True
    return values_T, mask_T
