"""Chunks from relays that a coordinator names: whoever fails or lies, the chunk comes, and the liar is told of."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from farflung.broadcast.pool_sources import REFRESH_S, PoolSources
from farflung.errors import FarflungError, PeerFault, Transient
from farflung.wire.canonical import sha256_hex

CHUNKS = {sha256_hex(data): data for data in (b"%d" % number * 100 for number in range(20))}
COORDINATOR, GOOD, BAD = "http://c", "http://good:1", "http://worse:1"

Answer = Callable[[str], Awaitable[bytes]]


async def honest(sha256: str) -> bytes:
    return CHUNKS[sha256]


async def lying(sha256: str) -> bytes:
    return bytes([CHUNKS[sha256][0] ^ 1]) + CHUNKS[sha256][1:]


async def dead(_sha256: str) -> bytes:
    raise Transient("connection refused")


async def redirecting(_sha256: str) -> bytes:
    raise PeerFault("bad_answer", "a redirect to 'http://169.254.169.254'")


class Gone(FarflungError):
    """What a coordinator refuses."""


async def refusing(_sha256: str) -> bytes:
    raise Gone("chunk is gone")


@dataclass
class Pool:
    """What the coordinator says, what the servers answer, and who was asked."""

    relays: dict[str, Answer] = field(default_factory=dict)
    coordinator: Answer = honest
    asked: Counter[str] = field(default_factory=Counter)
    told: list[tuple[str, ...]] = field(default_factory=list)
    skipped_s: float = 0.0
    problem: FarflungError | None = None

    def sources(self) -> PoolSources:
        return PoolSources(
            COORDINATOR, self._origin, self._list, self._relay, lambda: time.monotonic() + self.skipped_s
        )

    async def _origin(self, sha256: str, _num_bytes: int) -> bytes:
        self.asked[COORDINATOR] += 1
        return await self.coordinator(sha256)

    async def _list(self, liars: tuple[str, ...]) -> list[str]:
        self.told.append(liars)
        if self.problem is not None:
            raise self.problem
        return list(self.relays)

    async def _relay(self, server: str, sha256: str, _num_bytes: int) -> bytes:
        self.asked[server] += 1
        return await self.relays[server](sha256)


async def fetch_all(sources: PoolSources) -> None:
    for sha256, data in CHUNKS.items():
        assert await sources.get_chunk(sha256, len(data)) == data


async def test_without_relays_everything_comes_from_the_coordinator() -> None:
    pool = Pool()
    await fetch_all(pool.sources())
    assert pool.asked == {COORDINATOR: len(CHUNKS)}


async def test_relays_spare_the_coordinator() -> None:
    pool = Pool({GOOD: honest})
    sources = pool.sources()
    await asyncio.gather(*(sources.get_chunk(sha256, len(data)) for sha256, data in CHUNKS.items()))
    assert pool.asked == {GOOD: len(CHUNKS)}
    assert pool.told == [()]


@pytest.mark.parametrize("answer", [lying, redirecting])
async def test_a_liar_is_asked_once_named_in_the_log_and_told_of(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    pool = Pool({BAD: answer, GOOD: honest})
    with caplog.at_level(logging.WARNING):
        await fetch_all(pool.sources())
    assert pool.asked[BAD] == 1
    assert pool.asked[GOOD] == len(CHUNKS)
    assert pool.told == [(), (BAD,)]
    assert [record.getMessage().split()[0] for record in caplog.records] == [BAD]


async def test_where_every_relay_fails_the_coordinator_serves() -> None:
    pool = Pool({BAD: lying, "http://dead:1": dead})
    await fetch_all(pool.sources())
    assert pool.asked[COORDINATOR] >= len(CHUNKS) - 2


async def test_a_refusal_of_the_coordinator_ends_the_fetch_at_once() -> None:
    pool = Pool({"http://dead:1": dead}, coordinator=refusing)
    with pytest.raises(Gone):
        await pool.sources().get_chunk(*next((sha256, len(data)) for sha256, data in CHUNKS.items()))


async def test_a_chunk_that_was_spoilt_on_its_way_from_the_coordinator_is_asked_for_again() -> None:
    first = True

    async def spoilt_once(sha256: str) -> bytes:
        nonlocal first
        if first:
            first = False
            raise PeerFault("chunk_digest", "spoilt")
        return CHUNKS[sha256]

    pool = Pool({BAD: lying}, coordinator=spoilt_once)
    sha256, data = next(iter(CHUNKS.items()))
    assert await pool.sources().get_chunk(sha256, len(data)) == data
    assert pool.asked[COORDINATOR] == 2


async def test_the_list_is_asked_for_now_and_then_and_the_old_one_stays_when_nobody_answers() -> None:
    pool = Pool({GOOD: honest})
    sources = pool.sources()
    await fetch_all(sources)
    pool.problem = Transient("away")
    pool.skipped_s = REFRESH_S
    await fetch_all(sources)
    assert pool.asked == {GOOD: 2 * len(CHUNKS)}
    assert len(pool.told) == 2
    pool.problem = None
    pool.relays = {"http://new:1": honest}
    pool.skipped_s = 2 * REFRESH_S
    await fetch_all(sources)
    assert pool.asked["http://new:1"] == len(CHUNKS)


async def test_a_coordinator_that_still_lists_a_liar_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    pool = Pool({BAD: lying})
    sources = pool.sources()
    await fetch_all(sources)
    pool.skipped_s = 10 * REFRESH_S
    await fetch_all(sources)
    assert pool.asked == {BAD: 1, COORDINATOR: 2 * len(CHUNKS)}
    assert "fetching from the coordinator alone" in caplog.text
