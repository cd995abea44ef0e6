"""Connections that are held without being used, with raw sockets: an honest caller gets his answer all the same."""

import asyncio
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from farflung.api.errors import Refused
from farflung.api.server import exchange, gate
from farflung.api.server.gate import Gate, room_for_connections
from farflung.errors import Transient
from farflung.wire.canonical import sha256_hex

ANSWERS_WITHIN_S = 5.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "IDLE_S", 0.3)
    monkeypatch.setattr(gate, "HEADER_S", 0.3)
    monkeypatch.setattr(gate, "STALL_S", 0.3)
    monkeypatch.setattr(exchange, "BODY_SILENCE_S", 0.3)


async def connect(pool: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(pool.url)
    return await asyncio.open_connection(address.hostname, address.port, limit=1 << 16)


@asynccontextmanager
async def connections(pool: Any, count: int) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    opened = [await connect(pool) for _ in range(count)]
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in opened), return_exceptions=True)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends it soon, after whatever it may say."""
    try:
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            while await reader.read(1 << 16):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


async def asks(pool: Any) -> None:
    async with asyncio.timeout(ANSWERS_WITHIN_S):
        assert await (await pool.worker()).pool() == pool.spec


HALF = b"GET /v1/pool HTTP/1.1\r\nHost: x\r\nX-Slow: "


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("first", [b"", HALF, b"G"], ids=["silent", "half headers", "one byte"])
async def test_who_does_not_finish_a_request_is_cut_off(pool: Any, first: bytes) -> None:
    async with connections(pool, 20) as opened:
        for _, writer in opened:
            writer.write(first)
        await asks(pool)
        assert all(await asyncio.gather(*(is_closed(reader) for reader, _ in opened)))
    await asks(pool)


@pytest.mark.usefixtures("impatient")
async def test_a_slow_loris_is_cut_off_however_regularly_it_sends(pool: Any) -> None:
    """A byte now and then does not win time: headers have one deadline."""
    async with connections(pool, 1) as ((reader, writer),):
        writer.write(HALF)

        async def drip() -> None:
            while True:
                writer.write(b"a")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        try:
            assert await is_closed(reader)
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)


@pytest.mark.usefixtures("impatient")
async def test_a_connection_in_use_outlives_every_deadline(pool: Any) -> None:
    """A long poll is no idleness, and neither are calls that follow each other."""
    worker = await pool.worker()
    assert await worker.latest_manifest(newer_than=0, wait_s=1.0) is None
    for _ in range(8):
        await asyncio.sleep(0.1)
        await asks(pool)


def body_of(length: int, path: str = "/v1/leases", headers: str = "") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Farflung-Node: w9\r\nX-Farflung-Role: worker\r\n{headers}"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


@pytest.mark.usefixtures("impatient")
async def test_a_body_that_stops_and_one_that_drips_are_given_up(pool: Any) -> None:
    async with connections(pool, 2) as ((stopped, stopping), (dripped, dripping)):
        stopping.write(body_of(100) + b"{")
        dripping.write(body_of(1000) + b"{")

        async def drip() -> None:
            for _ in range(500):  # longer than the test waits: it is the pace that counts
                dripping.write(b" ")
                await asyncio.sleep(0.05)

        task = asyncio.create_task(drip())
        try:
            for reader in (stopped, dripped):
                async with asyncio.timeout(ANSWERS_WITHIN_S):
                    head = await reader.readuntil(b"\r\n")
                assert head.startswith(b"HTTP/1.1 400 ")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asks(pool)


@pytest.mark.usefixtures("impatient")
async def test_who_does_not_take_an_answer_is_cut_off(pool: Any) -> None:
    data = b"x" * (32 << 20)
    await (await pool.trainer()).put_chunk(sha256_hex(data), data)
    async with connections(pool, 1) as ((reader, writer),):
        writer.write(f"GET /v1/chunks/{sha256_hex(data)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await asyncio.sleep(1.0)
        received = 0
        try:
            while piece := await reader.read(1 << 20):
                received += len(piece)
        except ConnectionError:
            pass
        assert received < len(data)
    assert await (await pool.trainer()).get_chunk(sha256_hex(data), len(data)) == data


async def test_five_hundred_idle_connections_are_no_hindrance(start: Any) -> None:
    async with start(max_connections=64) as pool:
        await pool.publish()
        async with connections(pool, 500) as opened:
            await asks(pool)
            await pool.submitted("w1")
            closed = await asyncio.gather(*(is_closed(reader) for reader, _ in opened[:400]))
            assert all(closed), "the longest idle made room"


def transport_of(address: str) -> Any:
    class Transport(asyncio.Transport):
        is_aborted = False

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return (address, 1)

        def get_write_buffer_size(self) -> int:
            return 0

        def abort(self) -> None:
            self.is_aborted = True

    return Transport()


async def opened(of: Gate, address: str) -> tuple[Any, Any]:
    transport, connection = transport_of(address), of.guarded(asyncio.Protocol)
    connection.connection_made(transport)
    return transport, connection


async def test_one_address_has_its_share_of_connections_and_requests_in_progress_are_spared() -> None:
    own = Gate(max_connections=100, max_per_provider=2)
    busy, _ = await opened(own, "203.0.113.7")
    idle, idle_connection = await opened(own, "203.0.113.7")
    with own.request(busy):
        third, _ = await opened(own, "203.0.113.7")
        assert (busy.is_aborted, idle.is_aborted, third.is_aborted) == (False, True, False)
        idle_connection.connection_lost(None)
        with own.request(third):
            fourth, _ = await opened(own, "203.0.113.7")
            assert fourth.is_aborted, "nothing of this address is idle, so nothing makes room"
        elsewhere, _ = await opened(own, "203.0.113.8")
        here = [await opened(own, "127.0.0.1") for _ in range(5)]
        assert not elsewhere.is_aborted
        assert not any(transport.is_aborted for transport, _ in here)
    assert own.num_turned_away == 2


async def test_what_is_closed_is_forgotten() -> None:
    own = Gate(max_connections=2, max_per_provider=2)
    for _ in range(10):
        transport, connection = await opened(own, "203.0.113.7")
        with own.request(transport):
            pass
        connection.connection_lost(None)
    assert (len(own), own._idle, own._per_provider, own.num_turned_away) == (0, {}, {}, 0)


def test_there_are_never_more_connections_than_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = [(1024, 2048)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert room_for_connections(100) == 100
    assert limits == [(1024, 2048)]
    assert room_for_connections(1500) == 1500
    assert limits[-1] == (1628, 2048)
    assert room_for_connections(10_000) == 2048 - gate.SPARE_FILES


# -- who may do what -------------------------------------------------------------------------------------------------


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`stranger(address)`: from now on calls come from there."""

    def come_from(address: str) -> None:
        monkeypatch.setattr(exchange, "provider_of", lambda _request: address)

    return come_from


async def test_an_address_holds_only_so_many_leases_and_others_go_on(
    start: Any, build: Any, stranger: Callable[[str], None]
) -> None:
    async with start(build.pool_spec(max_outstanding_groups=40), max_leases_per_address=3) as pool:
        await pool.publish()
        stranger("203.0.113.7")
        hoard = [await pool.leased(f"sybil-{number}") for number in range(3)]
        assert await pool.lease("sybil-3") is None
        assert await pool.lease("sybil-0") == hoard[0], "its open lease it still gets"
        stranger("203.0.113.8")
        assert await pool.lease("honest") is not None
        stranger("203.0.113.7")
        submission = await pool.uploaded(hoard[0])
        await (await pool.worker("sybil-0")).submit(submission)
        assert await pool.lease("sybil-3") is not None, "work that is handed in makes room"


async def test_w28_an_address_that_asks_too_often_is_told_to_come_again(
    start: Any, stranger: Callable[[str], None]
) -> None:
    async with start(max_requests_per_s=1.0) as pool:
        await pool.publish()
        stranger("203.0.113.7")
        worker = await pool.worker()
        with pytest.raises(Transient, match="429"):
            await asyncio.gather(*(worker.pool() for _ in range(12)))
        stranger("203.0.113.8")
        assert await worker.pool() == pool.spec


async def test_a_worker_may_not_be_called_like_a_validator(pool: Any) -> None:
    await pool.assigned("v1")
    with pytest.raises(Refused, match="validator's name"):
        await pool.lease("v1")


async def test_a_node_does_not_judge_its_own_work(pool: Any, build: Any) -> None:
    submission = await pool.submitted("both")
    assert await pool.assigned("both") == []
    with pytest.raises(Refused, match="not_assigned"):
        await (await pool.validator("both")).judge(build.judgement_on(pool.spec, submission, "both"))
    with pytest.raises(Refused, match="not_assigned"):
        await (await pool.validator("v2")).judge(build.judgement_on(pool.spec, submission, "v2"))
    (assignment,) = await pool.assigned("v1")
    assert assignment.submission == submission
    await (await pool.validator("v1")).judge(build.judgement_on(pool.spec, submission, "v1"))
