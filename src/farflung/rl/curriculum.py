"""What is known of tasks from graded groups, and which of them are worth another visit.

    rate of a task     r <- s r + (1 - s) g          g = share of the group's rollouts that were right, s = smoothing;
                                                     the first group sets r
    preference         (r / t)^2t ((1 - r) / (1 - t))^2(1 - t)      if |r - t| <= band, else 0; t = target
                       for t = 0.5 it is 4 r (1 - r): the variance of a reward of 0 or 1, over its largest value
    retry              a task without a right rollout in k groups in a row is due again 2^(k - 1) retry_after versions
                       after the last, and at most max_retry_after

A task that is always solved lies above the band and is only met again by exploration (`slots.curriculum`). Of a part of
the tasks (`Stratum`) two running means are kept: of g, and of the preference that g has, which says how much there is
to be learned there; parts are told apart even where no task is ever seen twice.

Memory is bounded at any number of tasks: `max_tracked_tasks` are remembered, and with one too many those above the band
go first, then those below it, then the rest, of each the longest unseen first. What is forgotten counts as never seen.

Pure: states are values, nothing here knows time, files or how the wish is carried out. Observe groups in the order of
their slots, and the same groups make the same state whenever they arrived.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import isfinite
from typing import NamedTuple

from farflung.rl.types import RolloutGroup

MAX_UNSOLVED = 32
"""Groups in a row that are counted; the doubled pause has long reached its cap by then."""
STRATUM_STEP = 0.05
"""Weight of one group in the running means of its stratum: they follow the last twenty or so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurriculumParams:
    """How tasks are preferred; see the formulas above."""

    target: float = 0.5
    """Solve rate that is sought, in (0, 1)."""
    band: float = 0.4
    """Distance from it at which a task is no longer sought."""
    smoothing: float = 0.5
    """Weight of a task's past in its rate."""
    retry_after: int = 4
    """Versions until an unsolved task is tried again, doubled with every failure."""
    max_retry_after: int = 256
    """Versions; the longest pause."""
    max_tracked_tasks: int = 10_000
    """Tasks that are remembered."""

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise ValueError(f"target is {self.target}: a solve rate between 0 and 1, neither of them")
        if not 0 < self.band < 1 or not 0 <= self.smoothing < 1:
            raise ValueError(f"band is {self.band} and smoothing {self.smoothing}: both below 1, the band above 0")
        if not 1 <= self.retry_after <= self.max_retry_after or self.max_tracked_tasks < 1:
            raise ValueError(
                f"retry_after is {self.retry_after}, max_retry_after {self.max_retry_after} and max_tracked_tasks "
                f"{self.max_tracked_tasks}: each at least 1, the first no larger than the second"
            )


class TaskStat(NamedTuple):
    """What is remembered of a task."""

    rate: float
    num_unsolved: int
    """Groups without a right rollout since the last one with."""
    last_version: int
    """The trainer's version when it was last learned from."""


class StratumStat(NamedTuple):
    """Running means over the groups of a stratum."""

    rate: float = 0.0
    value: float = 1.0
    """Of the preference; 1 until something is known, so that it is looked at."""
    num_groups: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CurriculumState:
    """Everything that is remembered."""

    tasks: Mapping[int, TaskStat] = field(default_factory=dict)
    """Task index -> what is known of it."""
    strata: tuple[StratumStat, ...] = (StratumStat(),)


class Observation(NamedTuple):
    """One graded group."""

    task: int
    stratum: int
    rate: float


def observations(groups: Sequence[RolloutGroup], stratum_of: Callable[[int], int]) -> list[Observation]:
    """Of every group whose task is known and that has a grade, in their order."""
    found: list[Observation] = []
    for group in groups:
        rate = solve_rate(group)
        if group.task_index is not None and rate is not None:
            found.append(Observation(group.task_index, stratum_of(group.task_index), rate))
    return found


def solve_rate(group: RolloutGroup) -> float | None:
    """Share of its graded rollouts that were right; None without a grade.

    Right is what the environment calls correct, or else a reward of at least 1.
    """
    graded = [
        correct if correct is not None else float(reward >= 1.0)
        for reward, correct in zip(group.rewards, group.correct, strict=True)
        if reward is not None and isfinite(reward)
    ]
    return sum(min(max(value, 0.0), 1.0) for value in graded) / len(graded) if graded else None


def observe(
    state: CurriculumState, seen: Sequence[Observation], version: int, params: CurriculumParams
) -> CurriculumState:
    """The state after the groups of one batch, learned from at the trainer's `version`."""
    tasks, strata = dict(state.tasks), list(state.strata)
    for task, stratum, rate in seen:
        tasks[task] = _updated(tasks.get(task), rate, version, params)
        strata[stratum] = _moved(strata[stratum], rate, params)
    for task in _to_forget(tasks, params):
        del tasks[task]
    return CurriculumState(tasks=tasks, strata=tuple(strata))


def preference(rate: float, params: CurriculumParams) -> float:
    """How much a task of this rate is sought, in [0, 1]."""
    target = params.target
    if abs(rate - target) > params.band:
        return 0.0
    return float((rate / target) ** (2 * target) * ((1 - rate) / (1 - target)) ** (2 * (1 - target)))


def is_due(stat: TaskStat, version: int, params: CurriculumParams) -> bool:
    """Whether an unsolved task is to be tried again by this version."""
    if not stat.num_unsolved or stat.rate >= params.target - params.band:
        return False
    pause = min(params.retry_after << (stat.num_unsolved - 1), params.max_retry_after)
    return version >= stat.last_version + pause


def _updated(before: TaskStat | None, rate: float, version: int, params: CurriculumParams) -> TaskStat:
    if before is None:
        return TaskStat(rate, int(rate == 0), version)
    smoothed = params.smoothing * before.rate + (1 - params.smoothing) * rate
    num_unsolved = 0 if rate > 0 else min(before.num_unsolved + 1, MAX_UNSOLVED)
    return TaskStat(smoothed, num_unsolved, version)


def _moved(before: StratumStat, rate: float, params: CurriculumParams) -> StratumStat:
    value = preference(rate, params)
    if not before.num_groups:
        return StratumStat(rate, value, 1)
    return StratumStat(
        before.rate + STRATUM_STEP * (rate - before.rate),
        before.value + STRATUM_STEP * (value - before.value),
        before.num_groups + 1,
    )


def _to_forget(tasks: Mapping[int, TaskStat], params: CurriculumParams) -> list[int]:
    excess = len(tasks) - params.max_tracked_tasks

    def worth(task: int) -> tuple[int, int, int]:
        stat = tasks[task]
        if stat.rate > params.target + params.band:
            return 0, stat.last_version, task
        return (2 if stat.rate >= params.target - params.band else 1), stat.last_version, task

    return nsmallest(excess, tasks, key=worth) if excess > 0 else []
