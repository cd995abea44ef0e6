"""Validators that lie, sleep or crash: what they do changes nothing, is seen, and is recorded with the evidence."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from farflung.api.client import CoordinatorClient
from farflung.coordinator.journal import decode
from farflung.identity.keys import NodeKey, key_from_bytes
from farflung.identity.signing import check_signer
from farflung.slots import events
from farflung.state.event_log import SqlEventLog
from farflung.validator import service
from farflung.validator.config import ValidatorConfig
from farflung.wire.batch import SlotOutcome
from farflung.wire.check_rules import CheckRules
from farflung.wire.node import Role
from farflung.wire.panel import Fault, FaultKind, RingerKind
from farflung.wire.pool import PoolSpec
from farflung.wire.proof import DEFAULT_RULES
from farflung.wire.rollout import Rollout
from farflung.wire.verdict import Outcome, RejectReason, SlotState
from puppet_validator import Opinion, Puppet
from running_pool import COORDINATOR, TRAINER, Crew, coordinator, crew, publish_version
from tiny_pool import FAST, environment, pool_spec, tiny_policy

WORKER = key_from_bytes(b"\x01" * 32)
HONEST, SECOND, BRIBED, LAZY = (key_from_bytes(bytes([number]) * 32) for number in (21, 22, 23, 24))


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
    async with (
        coordinator(folder, pool, **changes) as url,
        crew(url, pool, WORKER) as made,
        AsyncExitStack() as stack,
    ):
        trainer = await made.client(Role.TRAINER, "trainer")
        await publish_version(trainer, pool, tiny_policy())
        yield Place(url, folder, pool, trainer, made, stack)


def recorded(folder: Path) -> list[Any]:
    """Every event of the journal of a coordinator that has ended."""
    log = SqlEventLog(f"sqlite:///{folder}/log.db")
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


async def test_three_validators_one_of_them_bribed_honest_work_is_accepted_and_bad_work_rejected(
    tmp_path: Path,
) -> None:
    """V2: the bribed one accepts everything. The quorum does not, and its own verdict costs it its bond."""
    pool = pool_of(3)
    async with place(tmp_path, pool, ringer_rate=0.0) as here:
        await here.honest(HONEST)
        await here.honest(SECOND)
        await here.puppet(BRIBED)
        await here.handed_in()
        (first,) = await here.outcomes(1)
        assert first.state is SlotState.ACCEPTED
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
    assert any(isinstance(event, events.BondForfeited) for event in recorded(tmp_path))


@pytest.mark.parametrize("shows_votes", [True, False])
async def test_v1_a_false_reject_by_one_of_three_harms_nobody_but_itself(tmp_path: Path, shows_votes: bool) -> None:
    """Also when it keeps its vote to itself as soon as it could lose by it."""
    async with place(tmp_path, pool_of(3), ringer_rate=0.0, judge_s=2.0) as here:
        await here.honest(HONEST)
        await here.honest(SECOND)
        await here.puppet(BRIBED, lambda _assignment: RejectReason.TOKEN_RANGE, shows_votes=shows_votes)
        await here.handed_in()
        (outcome,) = await here.outcomes(1)
        assert outcome.state is SlotState.ACCEPTED
    (fault,) = faults(tmp_path)
    assert fault.node == BRIBED.address
    assert fault.kind is (FaultKind.FALSE_REJECT if shows_votes else FaultKind.NOT_REVEALED)
    assert fault.kind.forfeits_bond is shows_votes


async def test_v2_a_lazy_validator_is_caught_by_the_first_planted_file_and_an_honest_one_by_none(
    tmp_path: Path,
) -> None:
    """Every second file is planted here; at a rate b the k-th of its files gives it away with 1 - (1 - b)^k."""
    async with place(tmp_path, pool_of(1), ringer_rate=1.0) as here:
        await here.honest(HONEST)
        lazy = await here.puppet(LAZY)
        for _ in range(200):
            await here.handed_in()
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
    by_honest = [event for event in ended if event.ringer.validator == HONEST.address and event.verdict]
    assert by_honest, "the honest one was tested as well"
    for event in by_honest:
        assert event.verdict is not None
        expected = Outcome.ACCEPTED if event.ringer.kind is RingerKind.CLAIMS else Outcome.REJECTED
        assert event.verdict.outcome is expected, event.ringer.kind
    assert not any(isinstance(event, events.FaultRecorded) for event in journal)
