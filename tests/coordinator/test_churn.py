"""Nodes that die, stall or come back: their work moves, and the pool's picture of them is true."""

import asyncio
from typing import Any

import pytest

from farflung.api.errors import Refused
from farflung.coordinator.assignments import AssignmentBook
from farflung.coordinator.nodes import MAX_NODES, NodeBook
from farflung.slots.lifecycle import Slot
from farflung.wire.lease import Lease
from farflung.wire.node import Heartbeat, Role
from farflung.wire.submission import Receipt
from farflung.wire.verdict import RejectReason, SlotState


def beat(node: str, role: Role = Role.WORKER, policy_version: int = 0) -> Heartbeat:
    return Heartbeat(
        node=node, role=role, policy_version=policy_version, activity="sampling", busy_s=0.0, idle_s=0.0, cpu_s=0.0
    )


async def test_the_lease_of_a_node_that_falls_silent_moves_to_another(start: Any, build: Any) -> None:
    """nousnet#21, case 70: a dropped node gets nothing new, and what it had is assigned again."""
    clock = build.clock()
    async with start(clock=clock, silent_after_s=5) as pool:
        await pool.publish()
        await (await pool.worker("w1")).heartbeat(beat("w1"))
        lost = await pool.leased("w1")
        clock.ahead_ms += 4_000
        await (await pool.worker("w2")).heartbeat(beat("w2"))
        await asyncio.sleep(0.1)
        assert (await pool.leased("w2")).slot == 1, "w1 is still alive"
        clock.ahead_ms += 4_000
        await (await pool.worker("w3")).heartbeat(beat("w3"))
        await asyncio.sleep(0.1)
        moved = await pool.leased("w3")
        assert (moved.slot, moved.attempt) == (lost.slot, 1)
        with pytest.raises(Refused, match="lease_over"):
            await (await pool.worker("w1")).ticket(lost.lease_id)
        statuses = {status.heartbeat.node: status.is_alive for status in (await (await pool.trainer()).status()).nodes}
        assert statuses == {"w1": True, "w2": True, "w3": True}, "w1 called again"


async def test_any_call_is_a_sign_of_life(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(clock=clock, silent_after_s=5) as pool:
        await pool.publish()
        held = await pool.leased("w1")
        for _ in range(4):
            clock.ahead_ms += 3_000
            await asyncio.sleep(0.05)
            assert await pool.leased("w1") == held


async def test_a_lease_that_runs_out_is_over_at_that_moment(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(clock=clock, sweep_s=60) as pool:
        await pool.publish()
        submission = await pool.uploaded(await pool.leased("w1"))
        clock.ahead_ms += 30_001
        with pytest.raises(Refused, match="lease_over"):
            await (await pool.worker("w1")).submit(submission)


async def test_asking_again_after_the_lease_ran_out_gives_a_new_one(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(clock=clock, sweep_s=60) as pool:
        await pool.publish()
        first = await pool.leased("w1")
        clock.ahead_ms += 30_001
        second = await pool.leased("w1")
        assert (second.slot, second.attempt) == (first.slot, 1), "nobody else is alive"


async def test_a_slot_out_of_attempts_ends_and_makes_room(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(build.pool_spec(max_attempts=2), clock=clock) as pool:
        await pool.publish()
        for node in ("w1", "w2"):
            assert (await pool.leased(node)).slot == 0
            clock.ahead_ms += 30_001
            await asyncio.sleep(0.1)
        (outcome,) = await (await pool.trainer()).outcomes()
        assert (outcome.slot, outcome.state) == (0, SlotState.EXPIRED)
        status = await (await pool.trainer()).status()
        assert status.drops == {"lease_expired": 2}
        assert status.outstanding_groups == 0


async def test_after_a_power_cut_of_all_workers_new_ones_are_not_kept_waiting(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(clock=clock) as pool:
        await pool.publish()
        for index in range(4):
            await pool.leased(f"old{index}")
        await pool.publish()
        clock.ahead_ms += 31_000
        await asyncio.sleep(0.1)
        lease = await pool.lease("new", wait_s=10)
        assert lease is not None
        assert lease.policy_version == 1


async def test_what_a_validator_does_not_judge_in_time_goes_to_another(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(clock=clock, judge_s=10) as pool:
        await pool.publish()
        submission = await pool.submitted()
        assert len(await pool.assigned("v1")) == 1
        assert await pool.assigned("v2") == []
        clock.ahead_ms += 10_001
        await (await pool.validator("v2")).heartbeat(beat("v2", Role.VALIDATOR))
        (assignment,) = await pool.assigned("v2", wait_s=10)
        assert assignment.submission == submission
        late = build.judgement_on(pool.spec, submission, "v1")
        with pytest.raises(Refused, match="not_assigned"):
            await (await pool.validator("v1")).judge(late)
        await (await pool.validator("v2")).judge(build.judgement_on(pool.spec, submission, "v2"))
        (outcome,) = await (await pool.trainer()).outcomes()
        assert (outcome.state, outcome.verdict.validator) == (SlotState.ACCEPTED, "v2")


async def test_a_late_verdict_counts_while_nobody_else_has_the_work(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(clock=clock, judge_s=10) as pool:
        await pool.publish()
        submission = await pool.submitted()
        assert len(await pool.assigned("v1")) == 1
        clock.ahead_ms += 10_001
        await asyncio.sleep(0.2)  # some sweeps: v1 does not hold it any more
        await (await pool.validator("v1")).judge(build.judgement_on(pool.spec, submission, "v1"))
        (outcome,) = await (await pool.trainer()).outcomes()
        assert outcome.state is SlotState.ACCEPTED


async def test_a_validator_that_starts_again_gets_its_work_back_at_once(pool: Any) -> None:
    submission = await pool.submitted()
    (first,) = await pool.assigned("v1")
    assert await pool.assigned("v1", held=[submission.digest()]) == []
    assert await pool.assigned("v1") == [first]
    assert await pool.assigned("v2") == []


async def test_a_silent_validators_work_is_free_without_blame(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(clock=clock, judge_s=3600, silent_after_s=5, max_judgings=1) as pool:
        await pool.publish()
        submission = await pool.submitted()
        assert len(await pool.assigned("v1")) == 1
        clock.ahead_ms += 5_001
        await (await pool.validator("v2")).heartbeat(beat("v2", Role.VALIDATOR))
        (assignment,) = await pool.assigned("v2", wait_s=10)
        assert assignment.submission == submission


async def test_a_submission_that_nobody_can_judge_is_set_aside_neither_accepted_nor_rejected(
    start: Any, build: Any
) -> None:
    async with start(max_judgings=2) as pool:
        await pool.publish()
        submission = await pool.submitted()
        for validator in ("v1", "v2"):
            assert len(await pool.assigned(validator, wait_s=10)) == 1
            unjudged = build.judgement_on(pool.spec, submission, validator, RejectReason.VALIDATOR_FAULT)
            await (await pool.validator(validator)).judge(unjudged)
        (outcome,) = await (await pool.trainer()).outcomes(wait_s=10)
        assert (outcome.state, outcome.verdict) == (SlotState.EXPIRED, None)
        assert (await (await pool.trainer()).status()).drops == {"validator_fault": 2}


async def test_a_failed_validator_gets_the_submission_again_only_if_it_is_alone(pool: Any, build: Any) -> None:
    submission = await pool.submitted()
    await pool.assigned("v1")
    unjudged = build.judgement_on(pool.spec, submission, "v1", RejectReason.FILE_MISSING)
    await (await pool.validator("v1")).judge(unjudged)
    assert len(await pool.assigned("v1")) == 1, "nobody else is there"
    await (await pool.validator("v1")).judge(unjudged)
    assert await pool.assigned("v2", max_count=1) != []


def book() -> NodeBook:
    return NodeBook(started_ms=1_000, silent_after_ms=100, forget_after_ms=1_000)


def test_a_node_never_heard_of_counts_from_the_start() -> None:
    assert book().silent(Role.WORKER, ["a"], 1_100) == set()
    assert book().silent(Role.WORKER, ["a"], 1_101) == {"a"}


def test_a_pause_of_the_coordinator_itself_counts_against_nobody() -> None:
    nodes = book()
    nodes.beat(beat("a"), 1_000)
    assert nodes.silent(Role.WORKER, ["a", "b"], 1_500) == {"a", "b"}
    nodes.excuse(500)
    assert nodes.silent(Role.WORKER, ["a", "b"], 1_500) == set()


def test_dead_nodes_are_listed_as_dead_and_then_forgotten() -> None:
    """parallax#160, complaint 61: lists show last-seen and expire."""
    nodes = book()
    nodes.beat(beat("a", policy_version=3), 1_000)
    assert nodes.alive_workers(1_100) == {"a": 3}
    nodes.forget_dead(2_000)
    ((status,), _) = nodes.statuses(2_000)
    assert (status.is_alive, status.last_seen_ms) == (False, 1_000)
    assert nodes.alive_workers(2_000) == {}
    nodes.forget_dead(2_001)
    assert nodes.statuses(2_001) == ((), 0)


def test_the_same_name_in_two_roles_is_two_nodes() -> None:
    nodes = book()
    nodes.beat(beat("a"), 1_000)
    nodes.saw(Role.VALIDATOR, "a", 1_000)
    assert (set(nodes.alive_workers(1_000)), nodes.alive_validators(1_000)) == ({"a"}, {"a"})


def test_a_flood_of_names_does_not_fill_the_memory() -> None:
    nodes = book()
    for number in range(MAX_NODES + 10):
        nodes.saw(Role.WORKER, f"n{number}", 1_000 + number)
    assert len(nodes.alive_workers(1_000)) == MAX_NODES
    assert "n0" not in nodes.alive_workers(1_000)


def test_a_file_that_kills_validators_keeps_its_first_deadline(build: Any) -> None:
    spec = build.pool_spec()
    lease = Lease(
        pool_digest=spec.digest(),
        lease_id="0-0",
        slot=0,
        attempt=0,
        node="w1",
        policy_version=0,
        policy_digest=spec.digest(),
        task_indices=(0, 1),
        target_lengths=(0, 0),
        draw_seed=spec.digest(),
        capability_class="any",
        issued_at_ms=0,
        expires_at_ms=1,
    )
    submission = build.submission_of(spec, lease, "k")
    receipt = Receipt(submission_digest=submission.digest(), sequence=0, epoch=0, received_at_ms=0, deadline_ms=0)
    waiting = [Slot(slot=0, state=SlotState.SUBMITTED, lease=lease, submission=submission, receipt=receipt)]
    assignments = AssignmentBook(judge_ms=100, max_judgings=3)

    def ask(validator: str, now_ms: int) -> list[Slot]:
        return assignments.assign(
            waiting, validator, held=(), max_count=1, alive_validators={"v1", "v2"}, now_ms=now_ms
        )

    assert ask("v1", 0) == waiting
    assert ask("v1", 90) == waiting
    assert assignments.lapsed(waiting, (), 99) == []
    (overdue,) = assignments.lapsed(waiting, (), 100)
    assert (overdue.slot, overdue.validator) == (0, "v1")
    assert ask("v2", 100) == waiting
