"""The trainer's curriculum: learns from every batch that made a version, and has a plan for each version.

A `Component` of checkpoints. What it does is a function of the batches in their order, so a run that goes on makes the
plans that the unbroken one would have made. Knows neither clocks nor the network.
"""

from collections.abc import Callable

from farflung.errors import PeerFault
from farflung.rl.curriculum import (
    CurriculumParams,
    CurriculumState,
    StratumStat,
    is_due,
    observations,
    observe,
)
from farflung.rl.curriculum_plan import PlanParams, make_plan
from farflung.rl.curriculum_snapshot import from_snapshot, to_snapshot
from farflung.rl.types import Batch
from farflung.slots.strata import interleaving_of
from farflung.trainer.config import CurriculumConfig
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.pool import PoolSpec, Stratum

STATE, PLAN = "state", "plan"


class Curriculum:
    """State and plan of one trainer."""

    def __init__(self, config: CurriculumConfig, pool: PoolSpec) -> None:
        self._every_versions = config.every_versions
        self._tasks = CurriculumParams(
            target=config.target_rate,
            band=config.band,
            smoothing=config.smoothing,
            retry_after=config.retry_after,
            max_retry_after=config.max_retry_after,
            max_tracked_tasks=config.max_tracked_tasks,
        )
        self._params = PlanParams(
            explore_share=config.explore_share,
            revisit_share=config.revisit_share,
            max_planned_tasks=config.max_planned_tasks,
            weights=config.weights,
        )
        self._pool = pool
        self._strata = pool.environment.strata
        self._stratum_of = stratum_finder(self._strata)
        self.state = CurriculumState(strata=(StratumStat(),) * max(1, len(self._strata)))
        self.current: CurriculumPlan | None = None
        """The plan in force, of the newest version or one before it."""

    def observe(self, batch: Batch) -> None:
        """Take the groups of a batch whose version is going to be published, and of no other."""
        seen = observations(batch.groups, self._stratum_of)
        self.state = observe(self.state, seen, batch.policy_version, self._tasks)

    def advance(self, batch: Batch) -> None:
        """Take a batch and plan for the version that it makes."""
        self.observe(batch)
        self.plan_for(batch.policy_version + 1)

    def plan_for(self, version: int) -> CurriculumPlan:
        """The plan that holds from this version on: a new one every so many versions, made once."""
        is_made = self.current is not None and self.current.policy_version == version
        if self.current is None or (version % self._every_versions == 0 and not is_made):
            self.current = make_plan(
                self.state,
                version=version,
                pool=self._pool,
                stratum_of=self._stratum_of,
                tasks=self._tasks,
                params=self._params,
            )
        return self.current

    def metrics(self, version: int) -> dict[str, float]:
        """Figures of what is known, and of the plan that holds from this version on."""
        plan = self.plan_for(version)
        total = sum(part.weight for part in plan.strata)
        figures = {
            "curriculum/tracked_tasks": float(len(self.state.tasks)),
            "curriculum/planned_tasks": float(sum(len(part.tasks) for part in plan.strata)),
            "curriculum/due_retries": float(
                sum(is_due(stat, version, self._tasks) for stat in self.state.tasks.values())
            ),
        }
        names = [stratum.name for stratum in self._strata] or ["all"]
        for name, stat, part in zip(names, self.state.strata, plan.strata, strict=True):
            figures[f"curriculum/solve_rate/{name}"] = stat.rate
            figures[f"curriculum/value/{name}"] = stat.value
            figures[f"curriculum/share/{name}"] = part.weight / total
        return figures

    # -- checkpoint: `trainer.checkpoint.Component` -------------------------------------------------------------------

    def snapshot(self) -> dict[str, object]:
        plan = "" if self.current is None else self.current.to_bytes().decode()
        return {STATE: to_snapshot(self.state), PLAN: plan}

    def restore(self, snapshot: dict[str, object]) -> None:
        state, plan = snapshot.get(STATE), snapshot.get(PLAN)
        if not isinstance(state, dict) or not isinstance(plan, str):
            raise ValueError("the snapshot of the curriculum has no state or no plan")
        try:
            self.current = CurriculumPlan.from_bytes(plan.encode()) if plan else None
        except PeerFault as fault:
            raise ValueError(f"the plan in the snapshot of the curriculum is damaged: {fault}") from fault
        self.state = from_snapshot(state, len(self.state.strata))


def stratum_finder(strata: tuple[Stratum, ...]) -> Callable[[int], int]:
    """Task index -> number of its stratum; 0 for all where there are none."""
    if not strata:
        return lambda _task: 0
    interleaving = interleaving_of(strata)
    return lambda task: interleaving.locate(task)[0]
