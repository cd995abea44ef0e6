"""What k samples per task say about a policy, with intervals: avg@k, pass@k, maj@k.

    avg@k    mean correctness of a sample
    pass@k   1 - C(n - c, k) / C(n, k) per task with c of n right: the unbiased estimate (2107.03374, equation 1)
    maj@k    correctness of the most frequent answer among k; ties share evenly; expected over which k of n are drawn

Intervals are percentile bootstraps over tasks, since samples of one task are not independent; where all tasks agree
on 0 or 1, which resampling cannot vary, they are Wilson's. Pure: randomness comes from a seed. Does not know engines,
environments or files.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 2000
MAJORITY_DRAWS = 64
"""Subsets of k among n > k samples that maj@k averages over."""
CONFIDENCE = 0.95
Z_SQUARED = 1.959964**2
"""Of the standard normal at `CONFIDENCE`; Wilson's interval of 0 of n ends at z^2 / (n + z^2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSamples:
    """The graded samples of one task; ungraded ones are left out before."""

    correct: tuple[float, ...]
    """Per sample, in [0, 1]."""
    answers: tuple[str, ...]
    """What each sample votes for."""

    def __post_init__(self) -> None:
        if len(self.correct) != len(self.answers):
            raise ValueError(f"{len(self.correct)} values of correct and {len(self.answers)} answers: they pair up")


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean over tasks with its interval."""

    value: float
    low: float
    high: float
    num_tasks: int
    """Tasks with enough graded samples."""


def avg_at(tasks: Sequence[TaskSamples], *, seed: int = 0) -> Estimate:
    """Mean correctness over all samples of each task, then over tasks."""
    return _estimate([sum(task.correct) / len(task.correct) for task in tasks if task.correct], seed)


def pass_at(tasks: Sequence[TaskSamples], k: int, *, seed: int = 0) -> Estimate:
    """Chance that at least one of k samples is right. A sample counts as right at correctness 1.

    Raises:
        ValueError: k below 1.
    """
    _check(k)
    return _estimate([_pass_at(task.correct, k) for task in tasks if len(task.correct) >= k], seed)


def maj_at(tasks: Sequence[TaskSamples], k: int, *, seed: int = 0) -> Estimate:
    """Chance that the majority of k samples is right. Raises as `pass_at`."""
    _check(k)
    rng = np.random.default_rng(seed)
    return _estimate([_maj_at(task, k, rng) for task in tasks if len(task.correct) >= k], seed)


def _check(k: int) -> None:
    if k < 1:
        raise ValueError(f"k is {k}: it must be at least 1")


def _pass_at(correct: Sequence[float], k: int) -> float:
    num, right = len(correct), sum(value >= 1.0 for value in correct)
    return 1.0 - comb(num - right, k) / comb(num, k)


def _maj_at(task: TaskSamples, k: int, rng: np.random.Generator) -> float:
    num = len(task.correct)
    if num == k:
        return _vote(task, range(num))
    return float(np.mean([_vote(task, rng.permutation(num)[:k].tolist()) for _ in range(MAJORITY_DRAWS)]))


def _vote(task: TaskSamples, members: Sequence[int]) -> float:
    counts = Counter(task.answers[member] for member in members)
    most = max(counts.values())
    winners = [answer for answer, count in counts.items() if count == most]
    scores = {task.answers[member]: task.correct[member] for member in members}
    return sum(scores[answer] for answer in winners) / len(winners)


def _estimate(per_task: Sequence[float], seed: int) -> Estimate:
    """nan where no task has enough samples."""
    values_T: NDArray[np.float64] = np.array(per_task, dtype=np.float64)
    if not len(values_T):
        return Estimate(value=float("nan"), low=float("nan"), high=float("nan"), num_tasks=0)
    if values_T.min() == values_T.max() and values_T[0] in (0.0, 1.0):
        width = Z_SQUARED / (len(values_T) + Z_SQUARED)
        low, high = (0.0, width) if values_T[0] == 0 else (1 - width, 1.0)
        return Estimate(value=float(values_T[0]), low=low, high=high, num_tasks=len(values_T))
    picks = np.random.default_rng(seed).integers(0, len(values_T), (NUM_RESAMPLES, len(values_T)))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values_T[picks].mean(1), [tail, 100 - tail])
    return Estimate(value=float(values_T.mean()), low=float(low), high=float(high), num_tasks=len(values_T))
