"""Validators that lie, sleep or crash: what they do changes nothing, is seen, and is recorded with the evidence."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.cli.audit import _from_folder
from farflung.cli.main import main
from farflung.coordinator.journal import decode
from farflung.identity.keys import NodeKey, key_from_bytes
from farflung.identity.signing import check_signer, sign
from farflung.slots import events
from farflung.slots.economics import items_until_caught
from farflung.slots.panel import draw_panel
from farflung.state.event_log import SqlEventLog
from farflung.validation.oversight import oversee
from farflung.validator import service
from farflung.validator.config import ValidatorConfig
from farflung.wire.batch import SlotOutcome
from farflung.wire.check_rules import CheckRules
from farflung.wire.node import Heartbeat, Role
from farflung.wire.panel import Fault, FaultKind, RingerKind
from farflung.wire.pool import PoolSpec
from farflung.wire.proof import DEFAULT_RULES
from farflung.wire.rollout import Rollout
from farflung.wire.submission import Assignment
from farflung.wire.verdict import Judgement, Outcome, RejectReason, SlotState
from puppet_validator import Opinion, Puppet
from running_pool import COORDINATOR, TRAINER, Crew, coordinator, crew, publish_version
from tiny_pool import FAST, environment, pool_spec, tiny_policy

WORKER = key_from_bytes(b"\x01" * 32)
HONEST, SECOND, THIRD, BRIBED, LAZY = (key_from_bytes(bytes([number]) * 32) for number in range(21, 26))


def pool_of(validators: int, **changes: Any) -> PoolSpec:
    return pool_spec(
        trust="proven",
        coordinator=COORDINATOR.address,
        trainer=TRAINER.address,
        proofs=DEFAULT_RULES,
        max_staleness=2,
        max_outstanding_groups=200,
        checks=CheckRules(validators_per_submission=validators, quorum=validators // 2 + 1),
        **changes,
    )


@dataclass
class Place:
    """A pool with a scripted worker, whose validators the test adds."""

    url: str
    folder: Path
    pool: PoolSpec
    trainer: CoordinatorClient
    crew: Crew
    stack: AsyncExitStack

    async def honest(self, key: NodeKey) -> None:
        """A real validator at work."""
        key_file = self.folder / f"{key.address}.key"
        key_file.write_text(key.private.to_hex())
        key_file.chmod(0o600)
        stop = asyncio.Event()
        settings = ValidatorConfig.model_validate({**FAST, "key_file": str(key_file)})
        task = asyncio.create_task(service.run(settings, url=self.url, stop=stop))

        async def end() -> None:
            stop.set()
            await task

        self.stack.push_async_callback(end)

    async def puppet(self, key: NodeKey, opinion: Opinion = lambda _assignment: None, **changes: Any) -> Puppet:
        client = await self.crew.client(Role.VALIDATOR, "anybody")
        made = Puppet(client, key, self.pool, environment(), opinion, **changes)
        task = asyncio.create_task(made.work())

        async def end() -> None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        self.stack.push_async_callback(end)
        return made

    async def handed_in(self, tamper: Callable[[list[Rollout]], Sequence[Rollout]] = list) -> None:
        self.crew.tamper = tamper
        assert await self.crew.submit() is not None

    async def outcomes(self, count: int) -> list[SlotOutcome]:
        found: list[SlotOutcome] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                found = await self.trainer.outcomes(-1, wait_s=0.2)
                if len(found) < count:
                    await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def place(folder: Path, pool: PoolSpec, **changes: Any) -> AsyncIterator[Place]:
    values = {"database_url": f"sqlite:///{folder}/coordinator.db", **changes}  # as in the folder of a run
    async with (
        coordinator(folder, pool, **values) as url,
        crew(url, pool, WORKER) as made,
        AsyncExitStack() as stack,
    ):
        trainer = await made.client(Role.TRAINER, "trainer")
        await publish_version(trainer, pool, tiny_policy())
        yield Place(url, folder, pool, trainer, made, stack)


def recorded(folder: Path) -> list[Any]:
    """Every event of the journal of a coordinator that has ended."""
    log = SqlEventLog(f"sqlite:///{folder}/coordinator.db")
    try:
        return [decode(entry) for entry in log.replay()]
    finally:
        log.close()


def faults(folder: Path) -> list[Fault]:
    return [
        event.fault if isinstance(event, events.FaultRecorded) else event.forfeit.fault
        for event in recorded(folder)
        if isinstance(event, events.FaultRecorded | events.BondForfeited)
    ]


def drawn_by_somebody_else(rollouts: list[Rollout]) -> list[Rollout]:
    """Every completion in the place of its neighbour, with its own proof."""
    others = [*rollouts[1:], rollouts[0]]
    return [
        replace(other, group=row.group, sample=row.sample, task_id=row.task_id, prompt_tokens=row.prompt_tokens)
        for row, other in zip(rollouts, others, strict=True)
    ]


async def audit_of(folder: Path, capsys: Any) -> dict[str, Any]:
    """What `farflung audit` says of it, with its exit code."""
    code = await asyncio.to_thread(main, ["audit", str(folder), "--json"])
    return {**json.loads(capsys.readouterr().out), "code": code}


async def test_three_validators_one_of_them_bribed_honest_work_is_accepted_and_bad_work_rejected(
    tmp_path: Path, capsys: Any
) -> None:
    """V2: the bribed one accepts everything. The quorum does not, and its own verdict costs it its bond.

    Every submission is audited here: those of a new node.
    """
    pool = pool_of(3)
    pool = structs.replace(pool, checks=structs.replace(pool.checks, audit_first=4))
    async with place(tmp_path, pool, ringer_rate=0.0) as here:
        await here.honest(HONEST)
        await here.honest(SECOND)
        await here.puppet(BRIBED)
        await here.handed_in()
        (first,) = await here.outcomes(1)
        assert first.state is SlotState.ACCEPTED
        assert first.verdict is not None
        if first.verdict.validator != BRIBED.address:  # whose figures are shown is a matter of the draw
            assert first.verdict.measured["audit/num_differences"] == 0.0
            assert first.verdict.measured["audit/num_tokens"] >= 1.0
        await here.handed_in(drawn_by_somebody_else)
        _, second = await here.outcomes(2)
        assert second.state is SlotState.REJECTED
        assert second.verdict is not None
        check_signer(second.verdict, second.verdict.validator)
        assert second.verdict.validator in (HONEST.address, SECOND.address)
    (fault,) = faults(tmp_path)
    assert (fault.node, fault.kind) == (BRIBED.address, FaultKind.FALSE_ACCEPT)
    assert fault.verdict is not None
    check_signer(fault.verdict, BRIBED.address)
    assert fault.contrary == second.verdict
    told = await audit_of(tmp_path, capsys)
    assert (told["code"], told["deviations"], told["num_panels_checked"]) == (0, [], 2)
    assert told["lost_bonds"] == {BRIBED.address: "false_accept"}
    assert told["audits"]["due"] == 1


@pytest.mark.parametrize("shows_votes", [True, False])
async def test_v1_a_false_reject_by_one_of_three_harms_nobody_but_itself(tmp_path: Path, shows_votes: bool) -> None:
    """Also when it keeps its vote to itself as soon as it could lose by it."""
    async with place(tmp_path, pool_of(3), ringer_rate=0.0, judge_s=6.0) as here:
        await here.honest(HONEST)
        await here.honest(SECOND)
        await here.puppet(BRIBED, lambda _assignment: RejectReason.TOKEN_RANGE, shows_votes=shows_votes)
        await here.handed_in()
        (outcome,) = await here.outcomes(1)
        assert outcome.state is SlotState.ACCEPTED
    kind = FaultKind.FALSE_REJECT if shows_votes else FaultKind.NOT_REVEALED
    assert {(fault.node, fault.kind) for fault in faults(tmp_path)} == {(BRIBED.address, kind)}, "in each round"
    assert kind.forfeits_bond is shows_votes


async def test_v2_a_lazy_validator_is_caught_by_the_first_planted_file(tmp_path: Path, capsys: Any) -> None:
    """Every file brings a planted one here; at a rate b, k files give it away with 1 - (1 - b)^k."""
    async with place(tmp_path, pool_of(1), ringer_rate=1.0) as here:
        await here.honest(HONEST)
        for _ in range(4):  # from these, which the lazy one has not seen, files are made for it
            await here.handed_in()
        await here.outcomes(4)
        lazy = await here.puppet(LAZY)
        for _ in range(50):
            await here.handed_in()
            await asyncio.sleep(0.05)
            if any(assignment.submission.node != WORKER.address for assignment in lazy.judged):
                break
        await here.handed_in()
        outcomes = await here.outcomes(len(here.crew.submissions))
        assert all(outcome.state is SlotState.ACCEPTED for outcome in outcomes)
        num_before = len(lazy.judged)
        for _ in range(4):
            await here.handed_in()
        await here.outcomes(len(here.crew.submissions))
        assert len(lazy.judged) == num_before, "who lost its bond gets nothing to judge"
    journal = recorded(tmp_path)
    (forfeited,) = [event.forfeit for event in journal if isinstance(event, events.BondForfeited)]
    check_signer(forfeited, COORDINATOR.address)
    fault = forfeited.fault
    assert (fault.node, fault.kind) == (LAZY.address, FaultKind.ACCEPTED_RINGER)
    assert fault.verdict is not None
    check_signer(fault.verdict, LAZY.address)
    ended = [event for event in journal if isinstance(event, events.RingerEnded)]
    planted = {event.ringer_digest for event in journal if isinstance(event, events.RingerPlanted)}
    assert {event.ringer.digest() for event in ended} <= planted
    assert not any(isinstance(event, events.FaultRecorded) for event in journal)
    told = await audit_of(tmp_path, capsys)
    assert (told["code"], told["deviations"]) == (0, [])
    assert told["lost_bonds"] == {LAZY.address: "accepted_ringer"}
    assert told["num_ringers"] >= 1


@pytest.mark.parametrize("validators", [1, 2])
async def test_v2_honest_validators_reject_what_is_planted_and_nobody_can_tell_it_apart(
    tmp_path: Path, validators: int
) -> None:
    """The adjacent honest twin, alone and in panels: every planted file gets the verdict that it has to get."""
    async with place(tmp_path, pool_of(validators), ringer_rate=1.0, judge_s=20.0) as here:
        for key in (HONEST, SECOND, THIRD)[: validators + 1]:
            await here.honest(key)
        beat = Heartbeat(
            node=WORKER.address, role=Role.WORKER, policy_version=0, activity="sampling", busy_s=0, idle_s=0, cpu_s=0
        )
        await here.crew.worker.heartbeat(beat)
        evidence = tmp_path / "store" / "evidence"
        for number in range(1, 60):
            await here.handed_in()
            await here.outcomes(number)
            await asyncio.sleep(0.1)
            if len(list(evidence.iterdir())) > number * validators:  # also on what was planted
                break
        assert all(outcome.state is SlotState.ACCEPTED for outcome in await here.outcomes(number))
        statuses = (await here.trainer.status()).nodes
        await asyncio.sleep(0.3)
    journal = recorded(tmp_path)
    ended = [event for event in journal if isinstance(event, events.RingerEnded) and event.verdict is not None]
    assert ended
    for event in ended:
        assert event.verdict is not None
        expected = Outcome.ACCEPTED if event.ringer.kind is RingerKind.CLAIMS else Outcome.REJECTED
        assert event.verdict.outcome is expected, event.ringer.kind
        check_signer(event.ringer.submission, event.ringer.submission.node)
        check_signer(event.ringer.lease, COORDINATOR.address)
        assert event.ringer.lease.node == event.ringer.submission.node != WORKER.address
    assert faults(tmp_path) == []
    there = [(status.heartbeat.role, status.heartbeat.node) for status in statuses]
    assert sorted(there) == there, "as they are listed without any"
    assert any((Role.WORKER, event.ringer.lease.node) in there for event in ended), "its worker is there"


@pytest.mark.parametrize("rate", [0.05, 0.25])
def test_v2_planted_files_until_a_lazy_validator_is_caught_are_those_of_the_formula(rate: float) -> None:
    """k files at a rate b catch with 1 - (1 - b)^k: half of the lazy ones are caught within ln 2 / -ln(1 - b)."""
    rng = np.random.default_rng(2)
    until_caught = rng.geometric(rate, size=20_000)
    within = items_until_caught(rate, 0.99, detection=1.0)
    assert np.mean(until_caught <= within) == pytest.approx(0.99, abs=0.003)


async def test_v4_a_file_that_crashes_validators_goes_to_others_and_is_neither_accepted_nor_rejected(
    tmp_path: Path,
) -> None:
    """Two of three cannot judge it: no quorum. The next round has others in it, and these decide."""
    crashing = RejectReason.VALIDATOR_FAULT
    async with place(tmp_path, pool_of(3), ringer_rate=0.0) as here:
        keys = [key_from_bytes(bytes([number]) * 32) for number in range(31, 37)]
        puppets = [await here.puppet(key) for key in keys]
        await asyncio.sleep(0.3)  # all are there
        victims: set[str] = set()

        def crash_first(assignment: Assignment) -> RejectReason | None:
            """The first three who look at it cannot judge it."""
            return crashing

        for puppet in puppets:
            puppet.opinion = crash_first
        await here.handed_in()
        async with asyncio.timeout(20):
            while len(victims) < 3:
                victims = {puppet.key.address for puppet in puppets if puppet.judged}
                await asyncio.sleep(0.01)
        for puppet in puppets:
            puppet.opinion = lambda _assignment: None
        (outcome,) = await here.outcomes(1)
        assert outcome.state is SlotState.ACCEPTED
    drawn = [event for event in recorded(tmp_path) if isinstance(event, events.PanelDrawn)]
    assert len(drawn) >= 2
    assert set(drawn[0].members).isdisjoint(drawn[1].members), "others, as long as there are enough"
    assert faults(tmp_path) == [], "who could not judge did nothing wrong"


async def test_v4_a_file_that_nobody_can_judge_is_expired_not_rejected(tmp_path: Path) -> None:
    async with place(tmp_path, pool_of(3), ringer_rate=0.0, max_judgings=2) as here:
        for number in range(31, 34):
            await here.puppet(key_from_bytes(bytes([number]) * 32), lambda _assignment: RejectReason.VALIDATOR_FAULT)
        await here.handed_in()
        (outcome,) = await here.outcomes(1)
        assert outcome.state is SlotState.EXPIRED
    assert faults(tmp_path) == []


async def test_v5_nodes_with_one_two_and_three_slots_are_judged_each_by_its_own(tmp_path: Path) -> None:
    """Nobody is compared with a mean: an uneven share is no fault, and work handed in twice is one submission."""
    async with place(tmp_path, pool_of(1), ringer_rate=0.0) as here:
        await here.honest(HONEST)
        shares = {}
        for number in (1, 2, 3):
            key = key_from_bytes(bytes([40 + number]) * 32)
            async with crew(here.url, here.pool, key) as worker:
                for _ in range(number):
                    submission = await worker.submit()
                    assert submission is not None
                    await worker.worker.submit(submission)
            shares[key.address] = number
        outcomes = await here.outcomes(6)
    accepted = [outcome.submission.node for outcome in outcomes if outcome.submission is not None]
    assert {node: accepted.count(node) for node in accepted} == shares
    assert {outcome.state for outcome in outcomes} == {SlotState.ACCEPTED}
    assert faults(tmp_path) == []


async def test_v6_the_draw_of_validators_and_of_audits_is_recomputed_from_the_transcript(tmp_path: Path) -> None:
    """And every other panel, and every audit that was left out, is seen."""
    pool = pool_of(3)
    pool = structs.replace(pool, checks=structs.replace(pool.checks, audit_rate=0.5))
    async with place(tmp_path, pool, ringer_rate=0.0) as here:
        for number in range(31, 36):
            await here.puppet(key_from_bytes(bytes([number]) * 32))
        await asyncio.sleep(0.3)
        for _ in range(6):
            await here.handed_in()
        await here.outcomes(6)
    history, notices = _from_folder(tmp_path)
    honest = oversee(history.rules, notices, history.events)
    assert (honest.deviations, honest.num_panels_checked) == ([], 6)
    assert 0 < honest.num_audits_due < 6, "half of them, by lot"
    assert honest.num_audits_done == 0, "puppets compute nothing, and it shows"
    (epoch,) = notices
    for sequence, event in history.events:
        if not isinstance(event, events.PanelDrawn):
            continue
        others = [name for name in event.candidates if name not in event.members]
        favoured = structs.replace(event, members=(others[0], *event.members[1:]))
        course = [(number, favoured if number == sequence else other) for number, other in history.events]
        told = oversee(history.rules, notices, course).deviations
        assert told[0].rule == "panel"
        assert f"slot {event.slot} was given to" in told[0].detail
        submission = next(
            other.submission.digest()
            for _, other in history.events
            if isinstance(other, events.Submitted) and other.submission.slot == event.slot
        )
        secret = bytes.fromhex(epoch.secret)
        assert draw_panel(secret, submission, 0, event.candidates, 3) == event.members


@pytest.mark.parametrize("cheat", ["left out", "invented", "excused"])
async def test_v6_a_coordinator_that_hides_or_invents_a_fault_is_named(tmp_path: Path, cheat: str) -> None:
    """The votes are public: whoever counts them again sees what had to be recorded."""
    async with place(tmp_path, pool_of(3), ringer_rate=0.0) as here:
        for number in (31, 32):
            await here.puppet(key_from_bytes(bytes([number]) * 32))
        await here.puppet(BRIBED, lambda _assignment: RejectReason.TOKEN_RANGE)
        await here.handed_in()
        await here.outcomes(1)
    history, notices = _from_folder(tmp_path)
    assert oversee(history.rules, notices, history.events).deviations == []
    course = []
    for sequence, event in history.events:
        if not isinstance(event, events.BondForfeited):
            course.append((sequence, event))
        elif cheat == "excused":
            course.append((sequence, events.FaultRecorded(fault=event.forfeit.fault, at_ms=0)))
        elif cheat == "invented":
            honest = structs.replace(event.forfeit.fault, node=HONEST.address)
            course += [(sequence, event), (sequence, events.FaultRecorded(fault=honest, at_ms=0))]
    last = events.VersionPublished(policy_version=1, policy_digest="a" * 64)
    deviations = oversee(history.rules, notices, [*course, (99, last)]).deviations
    assert {deviation.rule for deviation in deviations} == {"fault"}
    words = {"left out": "was not recorded", "invented": "which nothing here shows", "excused": "costs the bond"}
    assert any(words[cheat] in deviation.detail for deviation in deviations)


async def test_v7_a_verdict_on_what_was_never_handed_in_is_refused_and_nothing_stops(tmp_path: Path) -> None:
    """Whatever a validator names, it is looked up and not used as an index."""
    async with place(tmp_path, pool_of(1), ringer_rate=0.0) as here:
        puppet = await here.puppet(HONEST)
        await here.handed_in()
        await here.outcomes(1)
        assignment = puppet.judged[0]
        for changes in ({"slot": 10**9}, {"file_digest": "f" * 64}, {"lease_id": "999999999999-7"}):
            stranger = structs.replace(assignment.submission, **changes)
            judgement = await puppet._judgement(assignment)
            evidence = structs.replace(judgement.evidence, submission_digest=stranger.digest())
            verdict = structs.replace(
                judgement.verdict, submission_digest=stranger.digest(), evidence_digest=evidence.digest()
            )
            forged = Judgement(verdict=sign(verdict, HONEST), evidence=evidence)
            with pytest.raises(Refused, match="unknown_submission"):
                await puppet.client.judge(forged)
        await here.handed_in()
        assert len(await here.outcomes(2)) == 2


async def test_work_that_our_queue_made_stale_is_expired_with_its_receipt_and_nobodys_fault(tmp_path: Path) -> None:
    """No validator was there in time. The trainer is told, does not learn from it, and does not wait for it."""
    async with place(tmp_path, pool_of(3), ringer_rate=0.0) as here:
        await here.handed_in()
        for _ in range(3):  # out of the window of two versions
            await publish_version(here.trainer, here.pool, tiny_policy())
        status = await here.trainer.status()
        assert status.slots == {"leased": 0, "vacant": 0, "submitted": 0, "expired": 1}
        assert status.drops == {RejectReason.VERSION_WINDOW.value: 2}
        assert (await here.trainer.open_slots()).slots == ()
    history, notices = _from_folder(tmp_path)
    found = oversee(history.rules, notices, history.events)
    assert (found.deviations, found.faults) == ([], [])
