"""The feed against a running coordinator: what comes into the inbox, what is closed, what is given up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from farflung.api import client as client_module
from farflung.api.client import CoordinatorClient
from farflung.api.patience import Patience
from farflung.errors import Transient, UserError
from farflung.rl.buffer import BufferParams, ExperienceBuffer
from farflung.trainer.feed import Feed
from farflung.trainer.inbox import Inbox
from farflung.trainer.intake import IntakeRules
from farflung.trainer.publisher import Publisher
from farflung.trainer.regrading import REGRADED_DIFFERENTLY, Regrader
from farflung.trainer.samples import batch_items, training_set
from farflung.wire.batch import SlotDrop
from farflung.wire.manifest import Publication
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.wire.verdict import RejectReason
from running_pool import TRAINER, Crew, coordinator, crew, until
from tiny_pool import description, environment, pool_spec, reserved, tiny_policy


def an_inbox(pool: PoolSpec, window_slots: int = 2) -> Inbox:
    params = BufferParams(
        groups_per_batch=pool.groups_per_batch,
        max_staleness=pool.max_staleness,
        max_slots=6,
        window_slots=window_slots,
    )
    return Inbox(ExperienceBuffer(params))


@dataclass
class Bench:
    """A coordinator, a crew, and a trainer of which only feed and publisher run."""

    pool: PoolSpec
    client: CoordinatorClient
    crew: Crew
    patience: Patience
    publisher: Publisher
    stop: asyncio.Event
    inbox: Inbox
    feed: Feed

    def restart(self) -> None:
        """Another trainer, which has seen nothing."""
        self.inbox = an_inbox(self.pool)
        rules = IntakeRules(pool=self.pool, vocab_size=description().config.vocab_size, reserved_token_ids=reserved())
        self.feed = Feed(self.client, self.patience, rules, self.inbox, poll_s=0.2)

    async def publish(self, *, train: bool = False, drops: tuple[SlotDrop, ...] = ()) -> Publication:
        """The next version, from the next batch if asked to."""
        items = None
        if train:
            batch = await self.inbox.take(self.publisher.policy_version)
            assert batch is not None
            training = training_set(batch, normalize="none", judged_on="correct")
            items, drops = batch_items(batch, training, self.feed.submissions), batch.drops
            await self.inbox.release(batch.batch_id)
        elif self.publisher.policy_version >= 0:
            items = ()
        publication, prepared = self.publisher.prepare(
            tiny_policy(self.publisher.policy_version + 1), optimizer_step=0, now_ms=0, items=items, drops=drops
        )
        await self.publisher.send(publication, prepared)
        self.feed.published([item.slot for item in items or ()])
        return publication

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.feed.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def closed(self) -> dict[str, int]:
        prefix = "buffer/closed/"
        metrics = self.inbox.buffer.metrics()
        return {name.removeprefix(prefix): count for name, count in metrics.items() if name.startswith(prefix)}


@asynccontextmanager
async def a_bench(folder: Path, **changes: Any) -> AsyncIterator[Bench]:
    pool, stop = pool_spec(**changes), asyncio.Event()
    async with (
        coordinator(folder, pool) as url,
        crew(url, pool) as workers,
        CoordinatorClient(url, node="trainer", role=Role.TRAINER) as client,
    ):
        patience = Patience(stop, 5.0)
        publisher = Publisher(client, patience, pool, description().policy_files, 1 << 20, key=TRAINER)
        bench = Bench(pool, client, workers, patience, publisher, stop, None, None)  # type: ignore[arg-type]
        bench.restart()
        await bench.publish()
        yield bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with a_bench(tmp_path) as made:
        yield made


async def test_accepted_slots_come_in_graded_and_others_are_closed_with_their_reason(bench: Bench) -> None:
    accepted = await bench.crew.deliver(2)
    (rejected,) = await bench.crew.deliver(1, RejectReason.WRONG_TASK)
    buffer = bench.inbox.buffer
    async with bench.reading():
        await until(lambda: buffer.has_seen(rejected))
    assert buffer.pending_slots() == tuple(accepted)
    assert bench.closed() == {"wrong_task": 1}
    assert set(bench.feed.submissions) == set(accepted)
    batch = buffer.take(0)
    assert batch is not None
    assert batch.slots == tuple(accepted)
    assert batch.num_tokens == sum(bench.crew.submissions[slot].num_tokens for slot in accepted)
    assert [group.rewards for group in batch.groups] == [(0.0, 1.0, 0.0, 1.0)] * 4
    assert all(rollout.policy_version == 0 for group in batch.groups for rollout in group.rollouts)


async def test_the_feed_starts_where_the_one_before_ended_without_taking_anything_twice(bench: Bench) -> None:
    await bench.crew.deliver(2)
    async with bench.reading():
        await until(lambda: len(bench.inbox.buffer.pending_slots()) == 2)
    await bench.crew.deliver(1)
    async with bench.reading():
        await until(lambda: len(bench.inbox.buffer.pending_slots()) == 3)
    assert bench.inbox.buffer.metrics().get("buffer/duplicates", 0) == 0


async def test_a_stop_ends_the_feed_and_lets_the_trainer_go(bench: Bench) -> None:
    running = asyncio.create_task(bench.feed.run())
    waiting = asyncio.create_task(bench.inbox.take(0))
    await asyncio.sleep(0.05)
    bench.stop.set()
    await asyncio.wait_for(running, 5)
    assert await asyncio.wait_for(waiting, 5) is None


async def test_a_run_that_is_over_ends_the_feed_and_lets_the_trainer_go(bench: Bench) -> None:
    running = asyncio.create_task(bench.feed.run())
    waiting = asyncio.create_task(bench.inbox.take(0))
    await bench.publisher.finish()
    await asyncio.wait_for(running, 5)
    assert await asyncio.wait_for(waiting, 5) is None


async def test_a_coordinator_that_stays_away_is_raised_and_lets_the_trainer_go(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise Transient("away")

    bench.patience._longest_s = 0.1
    monkeypatch.setattr(bench.client, "outcomes", away)
    running = asyncio.create_task(bench.feed.run())
    assert await asyncio.wait_for(bench.inbox.take(0), 5) is None
    with pytest.raises(Transient, match="gave up after"):
        await running


@pytest.mark.parametrize("what", ["file", "evidence", "other_file"])
async def test_what_cannot_be_read_again_is_given_up_and_its_place_is_free_after_the_next_version(
    bench: Bench, tmp_path: Path, what: str
) -> None:
    first, second, third = await bench.crew.deliver(3)
    submission = bench.crew.submissions[first]
    (outcome, *_) = await bench.client.outcomes()
    stored = tmp_path / "store" / submission.file_key
    if what == "file":
        stored.unlink()
    elif what == "other_file":
        stored.write_bytes((tmp_path / "store" / bench.crew.submissions[second].file_key).read_bytes())
    else:
        (tmp_path / "store" / client_module.routes.evidence_key(outcome.verdict.evidence_digest)).unlink()
    async with bench.reading():
        await until(lambda: bench.inbox.buffer.has_seen(third))
        published = await bench.publish(train=True)
    assert first not in bench.feed.submissions
    assert published.batch is not None
    assert published.batch.drops == (SlotDrop(slot=first, reason="unreadable"),)
    assert [item.slot for item in published.batch.items] == [second, third]
    status = await bench.client.status()
    assert status.outstanding_groups == 0
    assert status.drops["unreadable"] >= 1


async def test_a_new_trainer_closes_what_was_trained_or_ended_before_and_takes_the_rest(bench: Bench) -> None:
    """The checkpoint is older than what the coordinator has seen: trained slots are not in the feed any more."""
    trained = await bench.crew.deliver(2)
    async with bench.reading():
        await until(lambda: len(bench.inbox.buffer.pending_slots()) == 2)
        await bench.publish(train=True)
    (rejected,) = await bench.crew.deliver(1, RejectReason.SCHEMA)
    ready = await bench.crew.deliver(2)
    still_leased = await bench.crew.lease()
    assert still_leased is not None
    bench.restart()
    await bench.feed.close_absent()
    assert bench.closed() == {"settled": 2}
    assert [bench.inbox.buffer.has_seen(slot) for slot in trained] == [True, True]
    async with bench.reading():
        await until(lambda: len(bench.inbox.buffer.pending_slots()) == 2)
    assert bench.inbox.buffer.pending_slots() == tuple(ready)
    assert bench.closed() == {"settled": 2, "schema": 1}
    assert rejected not in bench.feed.submissions
    assert bench.inbox.buffer.cursor == still_leased.slot


async def test_a_new_trainer_waits_for_nothing_when_all_slots_have_ended(bench: Bench) -> None:
    """Nothing is open and the feed is empty: only the next slot's number says what to close."""
    await bench.crew.deliver(2)
    async with bench.reading():
        await until(lambda: len(bench.inbox.buffer.pending_slots()) == 2)
        await bench.publish(train=True)
    bench.restart()
    await bench.feed.close_absent()
    assert bench.inbox.buffer.cursor == 2
    async with bench.reading():
        await bench.crew.deliver(2)
        batch = await asyncio.wait_for(bench.inbox.take(1), 10)
    assert batch is not None
    assert batch.slots == (2, 3)


async def test_the_whole_feed_is_looked_at_before_anything_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More outcomes than fit into one answer: an accepted slot on a later page must not be closed."""
    slots = await bench.crew.deliver(4)
    honest = bench.client.outcomes

    async def a_page(after: int = -1, wait_s: float = 0.0, limit: int = 1) -> Any:
        return await honest(after, wait_s, 1)

    monkeypatch.setattr(bench.client, "outcomes", a_page)
    await bench.feed.close_absent()
    assert bench.closed() == {}
    async with bench.reading():
        await until(lambda: bench.inbox.buffer.pending_slots() == tuple(slots))


async def test_a_slot_that_ended_out_of_the_window_is_closed_after_it_was_missed_for_a_version(tmp_path: Path) -> None:
    """It is in nobody's feed: expired because its version is too old, and forgotten at once."""
    async with a_bench(tmp_path, max_staleness=0, max_outstanding_groups=6) as bench:
        late = await bench.crew.lease()
        assert late is not None
        async with bench.reading():
            another = await bench.crew.another("w2")
            await another.deliver(2)
            await until(lambda: len(bench.inbox.buffer.pending_slots()) == 2)
            await bench.publish(train=True)
            await bench.crew.give_back(late)
            for _ in range(2):
                await another.deliver(2)
                await until(lambda: len(bench.inbox.buffer.pending_slots()) == 2)
                await bench.publish(train=True)
            await until(lambda: bench.inbox.buffer.has_seen(late.slot))
        assert bench.closed() == {"settled": 1}
        assert len(bench.inbox.buffer.snapshot()["seen"]) == 1


async def test_a_deterministic_run_does_not_go_on_without_an_accepted_slot(tmp_path: Path) -> None:
    async with a_bench(tmp_path, deterministic_seed=0) as bench:
        (first,) = await bench.crew.deliver(1)
        (tmp_path / "store" / bench.crew.submissions[first].file_key).unlink()
        with pytest.raises(UserError, match=f"accepted slot {first} cannot be read .*restore the coordinator's store"):
            await asyncio.wait_for(bench.feed.run(), 10)


async def test_a_slot_that_the_trainer_grades_differently_is_dropped_for_that_reason(tmp_path: Path) -> None:
    """The crew's validator gives 0, 1, 0, 1, whatever the answers are; the first slot is looked at."""
    looks = iter((0.0, 1.0, 1.0))
    async with a_bench(tmp_path) as bench:
        bench.feed = Feed(
            bench.client,
            bench.patience,
            IntakeRules(pool=bench.pool, vocab_size=description().config.vocab_size, reserved_token_ids=reserved()),
            bench.inbox,
            poll_s=0.2,
            regrader=Regrader(environment(), description().tokenizer, 0.5, lambda: next(looks)),
        )
        async with bench.reading():
            await bench.crew.deliver(3)
            batch = await bench.inbox.take(0)
        assert batch is not None
        assert batch.drops == (SlotDrop(slot=0, reason=REGRADED_DIFFERENTLY),)
        assert {entry.slot for entry in batch.entries} == {1, 2}
