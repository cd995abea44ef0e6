"""From what is known of tasks to a plan of what is sampled next: a pure function of the state and the version.

    explore   a fixed share of the groups goes through all tasks as if there were no plan
    steered   the others: strata by their weights; within a stratum `revisit_share` are named tasks, the rest fresh ones
    named     tasks in the band, the most preferred first (of equals the longest unseen), with up to 8 tickets each by
              preference; and unsolved tasks that are due, for at most a quarter of the places, with 4
    weights   "fixed": the pool's own. "adaptive": those times 0.05 + 0.95 * the stratum's running preference, so that
              work moves to where there is something to learn, and none is left without

While few tasks are named, fewer groups revisit: no named task is asked for more than about once a batch. This module
does not know secrets or slots.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from farflung.rl.curriculum import CurriculumParams, CurriculumState, is_due, preference
from farflung.wire.curriculum import MAX_PLANNED_TASKS, PERMILLE, CurriculumPlan, StratumPlan
from farflung.wire.pool import PoolSpec

MOST_TICKETS = 8
RETRY_TICKETS = 4
RETRY_PLACES = 0.25
"""Share of the places of a plan that unsolved tasks may take."""
LEAST_SHARE = 0.05
"""Of its own weight that a stratum keeps with "adaptive" weights, however little there is to learn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanParams:
    """How a plan spends groups."""

    explore_share: float = 0.25
    """Of all groups."""
    revisit_share: float = 0.8
    """Of the steered groups of a stratum, once enough tasks are named."""
    max_planned_tasks: int = 512
    weights: Literal["fixed", "adaptive"] = "fixed"

    def __post_init__(self) -> None:
        if not 0.001 <= self.explore_share <= 1 or not 0 <= self.revisit_share <= 1:
            raise ValueError(
                f"explore_share is {self.explore_share} and revisit_share {self.revisit_share}: at most 1, and "
                "explore_share at least 0.001, so that every task comes some time"
            )
        if not 0 <= self.max_planned_tasks <= MAX_PLANNED_TASKS:
            raise ValueError(f"max_planned_tasks is {self.max_planned_tasks}: from 0 to {MAX_PLANNED_TASKS}")


def make_plan(
    state: CurriculumState,
    *,
    version: int,
    pool: PoolSpec,
    stratum_of: Callable[[int], int],
    tasks: CurriculumParams,
    params: PlanParams,
) -> CurriculumPlan:
    """The plan to publish with `version`.

    Args:
        stratum_of: task index -> its stratum.
        tasks: what preference and retries mean.
    """
    weights = stratum_weights(state, pool, params)
    named: list[list[tuple[int, int]]] = [[] for _ in weights]
    for task, tickets in sorted(_named(state, version, tasks, params)):
        named[stratum_of(task)].append((task, tickets))
    parts = []
    for weight, mine in zip(weights, named, strict=True):
        wanted = pool.groups_per_batch * weight / sum(weights)
        share = params.revisit_share * min(1.0, len(mine) / max(wanted, 1.0))
        parts.append(
            StratumPlan(
                weight=weight,
                revisit_permille=round(PERMILLE * share) if mine else 0,
                tasks=tuple(task for task, _ in mine),
                tickets=tuple(tickets for _, tickets in mine),
            )
        )
    return CurriculumPlan(
        pool_digest=pool.digest(),
        policy_version=version,
        explore_permille=round(PERMILLE * params.explore_share),
        strata=tuple(parts),
    )


def stratum_weights(state: CurriculumState, pool: PoolSpec, params: PlanParams) -> list[int]:
    """Of the steered groups; the pool's own unless they are adaptive."""
    own = [stratum.weight for stratum in pool.environment.strata] or [1]
    if params.weights == "fixed":
        return own
    shares = [
        weight * (LEAST_SHARE + (1 - LEAST_SHARE) * stat.value) for weight, stat in zip(own, state.strata, strict=True)
    ]
    return [max(1, round(PERMILLE * share / sum(shares))) for share in shares]


def _named(
    state: CurriculumState, version: int, tasks: CurriculumParams, params: PlanParams
) -> Sequence[tuple[int, int]]:
    """(task, tickets) of every task that the plan names."""
    wishes = {rate: preference(rate, tasks) for rate in {stat.rate for stat in state.tasks.values()}}
    sought = sorted(
        (-wishes[stat.rate], stat.last_version, task) for task, stat in state.tasks.items() if wishes[stat.rate] > 0
    )
    due = sorted((stat.last_version, task) for task, stat in state.tasks.items() if is_due(stat, version, tasks))
    num_retries = min(len(due), ceil(params.max_planned_tasks * RETRY_PLACES))
    return [
        *((task, RETRY_TICKETS) for _, task in due[:num_retries]),
        *(
            (task, max(1, round(-wish * MOST_TICKETS)))
            for wish, _, task in sought[: params.max_planned_tasks - num_retries]
        ),
    ]
