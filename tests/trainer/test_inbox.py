import asyncio

import numpy as np

from farflung.rl.buffer import Admission, BufferParams, ExperienceBuffer
from farflung.rl.types import Batch, RolloutGroup
from farflung.trainer.inbox import Inbox
from farflung.wire.rollout import Rollout, StopReason


def an_inbox(*, max_slots: int = 4, window_slots: int | None = None, max_staleness: int = 1) -> Inbox:
    """Batches of two slots of one group."""
    params = BufferParams(
        groups_per_batch=2, max_staleness=max_staleness, max_slots=max_slots, window_slots=window_slots
    )
    return Inbox(ExperienceBuffer(params))


def groups(slot: int, version: int) -> tuple[RolloutGroup, ...]:
    rollout = Rollout(
        env="toy",
        task_id="0",
        group=0,
        sample=0,
        prompt_tokens=np.array([1], dtype=np.int32),
        completion_tokens=np.array([2], dtype=np.int32),
        logprobs=np.array([-1.0], dtype=np.float32),
        stop_reason=StopReason.EOS,
        policy_version=version,
    )
    group = RolloutGroup(slot=slot, group=0, task_id="0", rollouts=(rollout,), rewards=(1.0,), correct=(1.0,))
    return (group,)


async def admit(inbox: Inbox, slot: int, version: int = 0) -> Admission:
    return await inbox.admit(slot, version, groups(slot, version), num_tokens=1, node="a")


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def taken(inbox: Inbox, version: int = 0) -> Batch:
    batch = await inbox.take(version)
    assert batch is not None
    return batch


async def test_the_trainer_waits_for_a_batch() -> None:
    inbox = an_inbox()
    trainer = asyncio.create_task(taken(inbox))
    await admit(inbox, 1)
    await settle()
    assert not trainer.done()
    await admit(inbox, 0)
    assert (await trainer).slots == (0, 1)


async def test_closing_the_slot_that_is_waited_for_lets_the_trainer_go_on() -> None:
    inbox = an_inbox()
    trainer = asyncio.create_task(taken(inbox))
    await admit(inbox, 1)
    await admit(inbox, 2)
    await settle()
    assert not trainer.done()
    assert await inbox.close(0, "rejected")
    assert (await trainer).slots == (1, 2)
    assert not await inbox.close(0, "rejected")


async def test_a_producer_waits_until_a_batch_is_given_back() -> None:
    inbox = an_inbox()
    for slot in range(4):
        await admit(inbox, slot)
    batch = await taken(inbox)
    producer = asyncio.create_task(admit(inbox, 4))
    await settle()
    assert not producer.done()
    await inbox.release(batch.batch_id)
    assert await producer is Admission.ADMITTED


async def test_a_producer_goes_on_after_a_rolled_back_step() -> None:
    inbox = an_inbox()
    for slot in range(4):
        await admit(inbox, slot)
    batch = await taken(inbox)
    producer = asyncio.create_task(admit(inbox, 4))
    await settle()
    await inbox.discard(batch.batch_id, "non_finite")
    assert await producer is Admission.ADMITTED
    assert inbox.buffer.metrics()["buffer/dropped/non_finite"] == 2


async def test_a_producer_goes_on_when_stale_slots_leave() -> None:
    inbox = an_inbox()
    for slot in range(4):
        await admit(inbox, slot)
    producer = asyncio.create_task(admit(inbox, 4, version=2))
    await settle()
    assert not producer.done()
    trainer = asyncio.create_task(taken(inbox, 2))  # version 0 is too old by now
    assert await producer is Admission.ADMITTED
    await admit(inbox, 5, version=2)
    assert (await trainer).slots == (4, 5)


async def test_a_duplicate_is_told_at_once() -> None:
    inbox = an_inbox()
    await admit(inbox, 0)
    assert await admit(inbox, 0) is Admission.DUPLICATE


async def test_stopping_lets_everybody_go_and_loses_nothing() -> None:
    inbox = an_inbox()
    for slot in range(4):
        await admit(inbox, slot)
    producer = asyncio.create_task(admit(inbox, 4))
    await settle()
    await inbox.stop()
    assert await producer is Admission.FULL
    assert await inbox.take(0) is None
    assert not inbox.buffer.has_seen(4)
    assert inbox.buffer.pending_slots() == (0, 1, 2, 3)


async def test_stopping_wakes_a_waiting_trainer() -> None:
    inbox = an_inbox()
    trainer = asyncio.create_task(inbox.take(0))
    await settle()
    await inbox.stop()
    assert await trainer is None


async def test_a_cancelled_wait_leaves_the_inbox_usable() -> None:
    inbox = an_inbox()
    trainer = asyncio.create_task(inbox.take(0))
    await settle()
    trainer.cancel()
    await settle()
    assert trainer.cancelled()
    await admit(inbox, 0)
    await admit(inbox, 1)
    assert (await taken(inbox)).slots == (0, 1)


async def test_many_producers_in_any_order_lose_nothing() -> None:
    inbox = an_inbox()
    order = [(slot * 7) % 40 for slot in range(40)]
    producers = [asyncio.create_task(admit(inbox, slot)) for slot in order]
    trained: list[int] = []
    while len(trained) < 40:
        batch = await taken(inbox)
        trained += batch.slots
        await inbox.release(batch.batch_id)
    assert [await producer for producer in producers] == [Admission.ADMITTED] * 40
    assert trained == list(range(40))
