"""Curriculum plans at the coordinator: what is refused, what leases follow from, and what a restart keeps."""

from typing import Any

import pytest
from msgspec.structs import replace

from farflung.api.errors import Refused
from farflung.wire.curriculum import CurriculumPlan, StratumPlan
from farflung.wire.lease import Forfeit
from farflung.wire.manifest import Publication

PART = StratumPlan(weight=1, revisit_permille=900, tasks=(3, 5, 8), tickets=(1, 2, 3))


def a_plan(pool: Any, version: int, **changes: Any) -> CurriculumPlan:
    values: dict[str, Any] = {
        "pool_digest": pool.spec.digest(),
        "policy_version": version,
        "explore_permille": 1,
        "strata": (PART,),
    }
    return CurriculumPlan(**(values | changes))


async def steered(pool: Any, build: Any, plan: CurriculumPlan, named: str | None = None) -> Publication:
    """The next version, with this plan; `named` stands in the manifest in place of its digest."""
    trainer = await pool.trainer()
    publication = build.publication_of(pool.spec, await trainer.last_publication())
    digest = plan.digest() if named is None else named
    manifest = build.signed(replace(publication.manifest, curriculum_digest=digest))
    publication = replace(publication, manifest=manifest, curriculum=plan)
    await pool.store_chunks(publication.manifest)
    await trainer.publish(publication)
    return publication


async def test_leases_follow_the_plan_of_their_version_and_name_it(pool: Any, build: Any) -> None:
    without = await pool.leased("w1")
    assert without.curriculum_digest == ""
    plan = a_plan(pool, 1)
    await steered(pool, build, plan)
    lease = await pool.leased("w2")
    assert lease.curriculum_digest == plan.digest()
    assert set(lease.task_indices) <= set(PART.tasks)
    assert await (await pool.worker()).curriculum(plan.digest()) == plan


async def test_a_slot_that_is_leased_again_keeps_its_tasks_though_a_newer_plan_is_out(pool: Any, build: Any) -> None:
    await steered(pool, build, a_plan(pool, 1))
    lease = await pool.leased("w1")
    assert await pool.lease("w2", version=1)
    other = a_plan(pool, 2, strata=(replace(PART, tasks=(40, 50, 60)),))
    await steered(pool, build, other)
    await (await pool.worker("w1")).forfeit(Forfeit(node="w1", lease_id=lease.lease_id))
    again = await pool.lease("w3", version=1)
    assert again is not None
    assert (again.slot, again.attempt) == (lease.slot, 1)
    assert (again.task_indices, again.curriculum_digest) == (lease.task_indices, lease.curriculum_digest)
    assert again.draw_seed != lease.draw_seed


async def test_outcomes_say_which_tasks_the_slot_had(pool: Any) -> None:
    lease = await pool.leased("w1")
    submission = await pool.uploaded(lease)
    await (await pool.worker("w1")).submit(submission)
    await pool.judged(submission)
    (outcome,) = await (await pool.trainer()).outcomes()
    assert outcome.task_indices == lease.task_indices


async def test_plans_of_versions_that_are_gone_are_forgotten(pool: Any, build: Any) -> None:
    plans = [a_plan(pool, version) for version in range(1, 5)]
    for plan in plans:
        await steered(pool, build, plan)
    worker = await pool.worker()
    assert [await worker.curriculum(plan.digest()) for plan in plans[2:]] == plans[2:]
    with pytest.raises(Refused, match="was not published, or is not kept any more"):
        await worker.curriculum(plans[0].digest())


async def test_a_restart_keeps_the_plans(start: Any, build: Any) -> None:
    async with start(snapshot_every_events=10) as pool:
        await pool.publish()
        plan = a_plan(pool, 1)
        await steered(pool, build, plan)
        for number in range(12):
            lease = await pool.leased(f"n{number}")
            await (await pool.worker(f"n{number}")).forfeit(Forfeit(node=f"n{number}", lease_id=lease.lease_id))
    async with start() as pool:
        lease = await pool.leased("late")
        assert lease.curriculum_digest == plan.digest()
        assert set(lease.task_indices) <= {*PART.tasks}
        assert await (await pool.worker()).curriculum(plan.digest()) == plan


async def test_a_plan_that_does_not_fit_is_refused_and_nothing_is_published(pool: Any, build: Any) -> None:
    for plan, named, message in (
        (a_plan(pool, 1), "", "the manifest names ''"),
        (a_plan(pool, 1), "f" * 64, "the manifest names 'fff"),
        (a_plan(pool, 1, pool_digest="e" * 64), None, "for pool eee"),
        (a_plan(pool, 1, strata=(PART, PART)), None, "the plan has 2 strata, the environment 1"),
        (a_plan(pool, 1, strata=(replace(PART, tasks=(3, 5, 100)),)), None, "names task 100, the environment has 100"),
    ):
        with pytest.raises(Refused, match=message):
            await steered(pool, build, plan, named)
    manifest = await (await pool.worker()).latest_manifest()
    assert manifest is not None
    assert manifest.policy_version == 0


async def test_a_manifest_that_names_a_plan_brings_it(pool: Any, build: Any) -> None:
    trainer = await pool.trainer()
    publication = build.publication_of(pool.spec, await trainer.last_publication())
    publication = replace(publication, manifest=build.signed(replace(publication.manifest, curriculum_digest="a" * 64)))
    await pool.store_chunks(publication.manifest)
    with pytest.raises(Refused, match="the plan is ''"):
        await trainer.publish(publication)
