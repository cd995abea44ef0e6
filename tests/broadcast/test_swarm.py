"""Chunks from several servers, some of them dead, slow, lying or empty."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm, SwarmPolicy
from farflung.errors import PeerFault, Transient
from farflung.wire.canonical import sha256_hex

ORIGIN = "origin"
CHUNKS = {sha256_hex(bytes([number]) * 1000): bytes([number]) * 1000 for number in range(60)}
POLICY = SwarmPolicy(min_hedge_s=0.03, max_hedge_s=0.2, give_up_s=2.0)

Behaviour = Callable[[str], Awaitable[bytes]]


async def honest(sha256: str) -> bytes:
    await asyncio.sleep(0.001)
    return CHUNKS[sha256]


async def slow(sha256: str) -> bytes:
    await asyncio.sleep(30)
    return CHUNKS[sha256]


async def liar(sha256: str) -> bytes:
    return CHUNKS[sha256][:-1] + b"!"


async def dead(sha256: str) -> bytes:
    raise Transient("connection refused")


async def rude(sha256: str) -> bytes:
    raise PeerFault("protocol", "a redirect")


class Network:
    def __init__(self, **servers: Behaviour) -> None:
        self.servers = servers
        self.asked: Counter[str] = Counter()

    async def ask(self, server: str, sha256: str, num_bytes: int) -> bytes:
        assert num_bytes == 1000
        self.asked[server] += 1
        return await self.servers[server](sha256)

    def swarm(self, policy: SwarmPolicy = POLICY) -> Swarm:
        book = SourceBook(ORIGIN)
        book.offer(name for name in self.servers if name != ORIGIN)
        return Swarm(self.ask, book, asyncio.get_running_loop().time, policy)


async def fetch_all(swarm: Swarm) -> None:
    gate = asyncio.Semaphore(4)

    async def one(sha256: str) -> None:
        async with gate:
            assert await swarm.get_chunk(sha256, 1000) == CHUNKS[sha256]

    await asyncio.gather(*map(one, CHUNKS))


async def test_relays_share_the_work_and_the_origin_is_left_alone() -> None:
    network = Network(origin=honest, a=honest, b=honest, c=honest)
    await fetch_all(network.swarm())
    assert network.asked[ORIGIN] == 0
    assert min(network.asked[name] for name in "abc") >= 5


@pytest.mark.parametrize("bad", [slow, dead, liar, rude])
async def test_one_bad_relay_of_three_costs_no_chunk(bad: Behaviour) -> None:
    network = Network(origin=honest, a=honest, b=honest, c=bad)
    swarm = network.swarm()
    await fetch_all(swarm)
    assert network.asked["c"] < 15
    assert set(swarm.book.liars) == ({"c"} if bad in (liar, rude) else set())


@settings(max_examples=40, deadline=None)
@given(bit=st.integers(0, 7999), name=st.sampled_from("abc"))
def test_any_flipped_bit_is_put_down_to_the_relay_that_sent_it(bit: int, name: str) -> None:
    async def flipping(sha256: str) -> bytes:
        data = bytearray(CHUNKS[sha256])
        data[bit // 8] ^= 1 << bit % 8
        return bytes(data)

    async def fetch() -> dict[str, str]:
        behaviours: dict[str, Behaviour] = {"a": honest, "b": honest, "c": honest, name: flipping}
        swarm = Network(origin=honest, **behaviours).swarm()
        await fetch_all(swarm)
        return dict(swarm.book.liars)

    assert set(asyncio.run(fetch())) == {name}


async def test_without_a_fit_relay_the_origin_is_asked() -> None:
    network = Network(origin=honest, a=dead, b=liar)
    swarm = network.swarm()
    await fetch_all(swarm)
    assert swarm.book.bytes_from[ORIGIN] == 60_000
    assert "b" in swarm.book.liars


async def test_a_silent_relay_that_nobody_measured_does_not_hold_the_first_chunk_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is known at first; what the honest ones show meanwhile tells that the silent one is late."""
    monkeypatch.setattr("farflung.broadcast.sources._UNKNOWN_RATE", 1.0)
    network = Network(origin=honest, a=honest, b=honest, z=slow)
    await fetch_all(network.swarm(SwarmPolicy(min_hedge_s=0.03, max_hedge_s=1000.0, give_up_s=2.0)))
    assert network.asked["z"] > 0


async def test_one_silent_relay_and_an_origin_are_the_origin_before_long() -> None:
    network = Network(origin=honest, a=slow)
    swarm = network.swarm()
    await fetch_all(swarm)
    assert swarm.book.bytes_from[ORIGIN] == 60_000
    assert network.asked["a"] < 20  # four chunks at a time, a handful of times


async def test_a_liar_is_not_asked_again_even_after_it_left_and_came_back() -> None:
    network = Network(origin=honest, a=liar)
    swarm = network.swarm()
    await fetch_all(swarm)
    asked = network.asked["a"]
    swarm.book.offer([])
    swarm.book.offer(["a"])
    await fetch_all(swarm)
    assert network.asked["a"] == asked


async def test_a_chunk_that_nobody_has_is_transient_and_lies_alone_are_blamed() -> None:
    digest = next(iter(CHUNKS))
    short = SwarmPolicy(min_hedge_s=0.01, give_up_s=0.2)
    with pytest.raises(Transient, match="no server gave chunk"):
        await Network(origin=dead, a=slow).swarm(short).get_chunk(digest, 1000)
    with pytest.raises(PeerFault, match="every server has sent wrong chunks"):
        await Network(origin=liar, a=liar).swarm().get_chunk(digest, 1000)


async def test_a_request_that_lingers_is_overtaken_and_cancelled() -> None:
    cancelled = asyncio.Event()

    async def lingering(sha256: str) -> bytes:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    network = Network(origin=honest, z=lingering)
    swarm = network.swarm()
    await swarm.get_chunk(next(iter(CHUNKS)), 1000)
    assert cancelled.is_set()
    assert swarm.book._records["z"].num_in_flight == 0


async def test_a_call_that_is_cancelled_leaves_no_request_behind() -> None:
    network = Network(origin=slow, a=slow)
    swarm = network.swarm()
    task = asyncio.create_task(swarm.get_chunk(next(iter(CHUNKS)), 1000))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) == 1
