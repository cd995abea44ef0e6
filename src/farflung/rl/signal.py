"""Which groups cannot teach anything.

A group whose rewards are all equal has advantages of 0. It is judged on the *unshaped* task reward, because shaping
(length, format) would give a solved group a false spread; where the shaped part is itself an objective (a target
length that the prompt asks for), on the total.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import isfinite
from typing import Literal

from farflung.rl.types import RolloutGroup

JudgedOn = Literal["correct", "total"]
TOLERANCE = 1e-6
"""Rewards are of order 1 and may have passed through float32, whose rounding makes equal rewards differ by 1e-7."""


class NoLearning(StrEnum):
    """Why a group carries no gradient."""

    NO_SIGNAL = "no_signal"
    UNGRADABLE = "ungradable"
    """Fewer than two of its rollouts have a reward."""


def why_no_learning(
    group: RolloutGroup, *, judged_on: JudgedOn = "correct", tolerance: float = TOLERANCE
) -> NoLearning | None:
    """The reason to drop the group, None if it can be learned from.

    A group that lacks an unshaped reward for a graded rollout is judged on the total.
    """
    graded = [
        (reward, correct)
        for reward, correct in zip(group.rewards, group.correct, strict=True)
        if reward is not None and isfinite(reward)
    ]
    if len(graded) < 2:
        return NoLearning.UNGRADABLE
    totals = [reward for reward, _ in graded]
    unshaped = [correct for _, correct in graded if correct is not None and isfinite(correct)]
    judged = unshaped if judged_on == "correct" and len(unshaped) == len(graded) else totals
    # Equal totals give advantages of 0 whatever the unshaped rewards say.
    if _is_flat(judged, tolerance) or _is_flat(totals, tolerance):
        return NoLearning.NO_SIGNAL
    return None


def _is_flat(scores: Sequence[float], tolerance: float) -> bool:
    return max(scores) - min(scores) <= tolerance
