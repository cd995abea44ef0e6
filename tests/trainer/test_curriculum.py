"""The trainer's curriculum in a running pool: plans bound into leases, and a run that goes on as if never stopped."""

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from farflung.coordinator.journal import PoolOpened, Published, decode
from farflung.rl.types import Batch, RolloutGroup
from farflung.slots.audit import lease_problem
from farflung.slots.events import LeaseGranted
from farflung.slots.strata import interleaving_of
from farflung.state.event_log import SqlEventLog
from farflung.telemetry.metrics import read_metrics
from farflung.trainer import service
from farflung.trainer.checkpoint import Checkpoints, Progress
from farflung.trainer.config import CurriculumConfig
from farflung.trainer.curriculum import Curriculum
from farflung.trainer.marks import Mark, Marks, pass_by
from farflung.trainer.member_metrics import member_metrics
from farflung.wire.lease import Lease
from farflung.wire.manifest import Publication
from farflung.wire.pool import EnvironmentSpec, PoolSpec, Stratum
from running_pool import check_history, coordinator, crew, publications, working
from tiny_pool import NUM_TASKS, SEED, batch_of, pool_spec, sampled_groups, tiny_policy, trainer_config

STEERED: dict[str, Any] = {"enabled": True, "retry_after": 1, "explore_share": 0.25}
POOL = pool_spec()
FIXED = pool_spec(deterministic_seed=SEED, max_staleness=0, max_outstanding_groups=4)


class Killed(Exception):
    """The trainer is gone: nothing after this point happens."""


@pytest.fixture
def any_order_of_sums() -> Iterator[None]:
    """Puts torch back as it was."""
    yield
    torch.use_deterministic_algorithms(False)


@cache
def a_sampled_slot() -> tuple[RolloutGroup, ...]:
    return sampled_groups(tiny_policy(), POOL)


def a_batch(version: int, tasks: tuple[int, int], rates: tuple[float, float] = (0.5, 0.5)) -> Batch:
    """Two groups of four, of these tasks, with these shares of right rollouts."""
    groups = []
    for group, task, rate in zip(a_sampled_slot(), tasks, rates, strict=True):
        rewards = tuple(float(sample < 4 * rate) for sample in range(4))
        groups.append(
            RolloutGroup(
                slot=0,
                group=group.group,
                task_id=group.task_id,
                rollouts=group.rollouts,
                rewards=rewards,
                correct=rewards,
                task_index=task,
            )
        )
    return batch_of(groups, version=version)


def curriculum_of(pool: PoolSpec = POOL, **changes: Any) -> Curriculum:
    return Curriculum(CurriculumConfig.model_validate(STEERED | changes), pool)


# -- by itself --------------------------------------------------------------------------------------------------------


def test_a_plan_is_made_every_so_many_versions_and_holds_between() -> None:
    curriculum = curriculum_of(every_versions=3)
    plans = []
    for version in range(7):
        plans.append(curriculum.plan_for(version))
        curriculum.observe(a_batch(version, (version, 50 + version)))
    assert [plan.policy_version for plan in plans] == [0, 0, 0, 3, 3, 3, 6]
    assert plans[3].strata[0].tasks == (0, 1, 2, 50, 51, 52)


def test_a_restored_curriculum_goes_on_as_the_one_that_was_never_stopped() -> None:
    unbroken, broken = curriculum_of(every_versions=2), curriculum_of(every_versions=2)
    for version in range(9):
        batch = a_batch(version, (version % 4, 10 + version), (version % 3 / 2, 0.0))
        if version:
            unbroken.observe(batch)
            broken.observe(batch)
        assert broken.plan_for(version) == unbroken.plan_for(version)
        kept = Progress.from_bytes(a_progress(broken).to_bytes()).component_state["curriculum"]
        broken = curriculum_of(every_versions=2)
        broken.restore(kept)
        assert broken.state == unbroken.state
        assert broken.snapshot() == unbroken.snapshot()
        assert broken.metrics(version) == unbroken.metrics(version)


def a_progress(curriculum: Curriculum) -> Progress:
    return Progress(
        pool_digest=POOL.digest(),
        policy_version=0,
        optimizer_step=0,
        initial_accuracy=0.0,
        best_accuracy=0.0,
        tokens_trained=0,
        dropped_groups={},
        buffer={},
        component_state={"curriculum": curriculum.snapshot()},
    )


@pytest.mark.parametrize("snapshot", [{}, {"state": {}, "plan": 3}, {"state": {"format": 1}, "plan": "{"}])
def test_a_damaged_snapshot_is_refused_and_changes_nothing(snapshot: dict[str, object]) -> None:
    curriculum = curriculum_of()
    before = curriculum.snapshot()
    with pytest.raises(ValueError, match="curriculum"):
        curriculum.restore(snapshot)
    assert curriculum.snapshot() == before


def test_figures_tell_the_strata_apart() -> None:
    strata = (Stratum(name="easy", num_tasks=30, weight=1), Stratum(name="hard", num_tasks=60, weight=1))
    pool = pool_spec(environment=EnvironmentSpec(name="mixture", num_tasks=90, strata=strata))
    tasks = (interleaving_of(strata).index_of(0, 3), interleaving_of(strata).index_of(1, 5))
    batch = a_batch(0, tasks, (1.0, 0.0))
    assert member_metrics(batch.groups, strata) == {
        "groups/easy": 1.0,
        "reward/easy/mean": 1.0,
        "correct/easy/mean": 1.0,
        "solve_rate/easy": 1.0,
        "groups/hard": 1.0,
        "reward/hard/mean": 0.0,
        "correct/hard/mean": 0.0,
        "solve_rate/hard": 0.0,
    }
    assert member_metrics(batch.groups, ()) == {}
    curriculum = curriculum_of(pool)
    curriculum.observe(batch)
    figures = curriculum.metrics(1)
    assert figures["curriculum/tracked_tasks"] == 2
    assert figures["curriculum/planned_tasks"] == 1  # the unsolved one, which is due
    assert (figures["curriculum/solve_rate/easy"], figures["curriculum/solve_rate/hard"]) == (1.0, 0.0)
    assert (figures["curriculum/share/easy"], figures["curriculum/share/hard"]) == (0.5, 0.5)


# -- in a pool --------------------------------------------------------------------------------------------------------


async def train(folder: Path, pool: PoolSpec, marks: Marks = pass_by, **config: Any) -> None:
    async with coordinator(folder, pool) as url, crew(url, pool) as workers, working(workers):
        settings = trainer_config(**config)
        running = service.run(settings, url=url, run_folder=folder, seed=SEED, stop=asyncio.Event(), marks=marks)
        await asyncio.wait_for(running, 60)


def journal(folder: Path) -> tuple[PoolOpened, list[Publication], list[Lease]]:
    """What the coordinator of a folder wrote down."""
    log = SqlEventLog(f"sqlite:///{folder}/log.db")
    try:
        records = [decode(entry) for entry in log.replay()]
    finally:
        log.close()
    (opened,) = [record for record in records if isinstance(record, PoolOpened)]
    return (
        opened,
        [record.publication for record in records if isinstance(record, Published)],
        [record.lease for record in records if isinstance(record, LeaseGranted)],
    )


async def test_every_lease_is_what_an_auditor_computes_from_secret_and_plan(tmp_path: Path) -> None:
    await train(tmp_path, POOL, max_versions=4, curriculum=STEERED)
    opened, published, leases = journal(tmp_path)
    check_history(published)
    plans = [publication.curriculum for publication in published]
    assert all(plan is not None for plan in plans)
    assert sum(len(part.tasks) for plan in plans[1:] if plan for part in plan.strata) > 0
    assert leases
    for lease in leases:
        assert lease_problem(opened.spec, opened.secret, lease, plans[lease.policy_version]) is None
    rows = [row for row in read_metrics(tmp_path / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["curriculum/tracked_tasks"] for row in rows] == sorted(row["curriculum/tracked_tasks"] for row in rows)
    assert rows[-1]["curriculum/planned_tasks"] > 0


async def test_off_by_default_it_is_the_permutation_of_the_pool(tmp_path: Path) -> None:
    await train(tmp_path, POOL, max_versions=2)
    opened, published, leases = journal(tmp_path)
    assert all(publication.curriculum is None for publication in published)
    assert all(publication.manifest.curriculum_digest == "" for publication in published)
    first = [task for lease in leases[: NUM_TASKS // 2] for task in lease.task_indices]
    assert len(first) == len(set(first))
    assert all(lease_problem(opened.spec, opened.secret, lease, None) is None for lease in leases)
    kept = Checkpoints(tmp_path / "checkpoints", keep=9).load_newest()
    assert kept is not None
    assert "curriculum" not in kept.progress.component_state


@pytest.mark.usefixtures("any_order_of_sums")
async def test_killed_again_and_again_a_run_makes_the_plans_of_the_unbroken_one(tmp_path: Path) -> None:
    """C1: the same tasks in the same order; plans, state and leases follow from what was trained on alone."""
    config: dict[str, Any] = {"max_versions": 6, "curriculum": STEERED | {"every_versions": 2}}
    await train(tmp_path / "unbroken", FIXED, **config)
    for moment in ((Mark.RELEASED, 2), (Mark.SAVED, 3), (Mark.ANNOUNCED, 4), (Mark.STEPPED, 6)):

        def die(mark: Mark, version: int, moment: tuple[Mark, int] = moment) -> None:
            if (mark, version) == moment:
                raise Killed

        with pytest.raises(Killed):
            await train(tmp_path / "broken", FIXED, die, **config)
    await train(tmp_path / "broken", FIXED, **config)
    assert history(tmp_path / "broken") == history(tmp_path / "unbroken")


def history(folder: Path) -> dict[str, Any]:
    """What must be equal of two runs."""
    _, published, leases = journal(folder)
    newest = Checkpoints(folder / "checkpoints", keep=9).load_newest()
    assert newest is not None
    assert publications(folder) == published
    return {
        "plans": [publication.curriculum for publication in published],
        "digests": [publication.manifest.curriculum_digest for publication in published],
        "tasks": {lease.slot: (lease.task_indices, lease.curriculum_digest) for lease in leases},
        "curriculum": json.dumps(newest.progress.component_state["curriculum"], sort_keys=True),
    }
