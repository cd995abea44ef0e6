"""GETs of known size against servers that are right, rude, slow or wrong, at the level of sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from farflung.broadcast.plain_http import MAX_HEAD_BYTES, MAX_IDLE, PlainHttp
from farflung.errors import PeerFault, Transient

BODY = bytes(range(256)) * 3000
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[str]:
    """Each connection is served until `serve` returns, then closed."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def client(silence_s: float = 2.0) -> PlainHttp:
    return PlainHttp({"X-Node": "n1"}, connect_s=2.0, silence_s=silence_s)


def head(num_bytes: int, *more: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {num_bytes}", *more, "", ""]).encode()


def answering(answer: bytes, asked: list[bytes] | None = None, *, num_answers: int = 99) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(num_answers):
            request = await reader.readuntil(b"\r\n\r\n")
            if asked is not None:
                asked.append(request)
            writer.write(answer)
            await writer.drain()

    return serve


async def got(answer: bytes, num_bytes: int = len(BODY), silence_s: float = 2.0) -> bytearray:
    """From a server that says this and closes the connection."""
    http = client(silence_s)
    try:
        async with served(answering(answer, num_answers=1)) as url:
            return await http.get(url, "/v1/x", num_bytes)
    finally:
        http.close()


async def test_bodies_come_whole_over_one_connection() -> None:
    asked: list[bytes] = []
    http, connections = client(), 0
    once = answering(head(len(BODY)) + BODY, asked)

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await once(reader, writer)

    async with served(counted) as url:
        for _ in range(3):
            assert await http.get(url, "/v1/x", len(BODY)) == BODY
        http.close()
    assert connections == 1
    assert asked[0].startswith(b"GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nX-Node: n1\r\n" in asked[0]


async def test_many_at_once_have_a_connection_each_and_few_are_kept() -> None:
    http = client()
    async with served(answering(head(3) + b"abc")) as url:
        bodies = await asyncio.gather(*(http.get(url, "/v1/x", 3) for _ in range(3 * MAX_IDLE)))
        assert bodies == [b"abc"] * (3 * MAX_IDLE)
        assert len(http._idle[url]) <= MAX_IDLE
        http.close()


async def test_an_old_connection_that_the_server_closed_is_replaced() -> None:
    http = client()
    async with served(answering(head(3) + b"abc", num_answers=1)) as url:
        for _ in range(3):
            assert await http.get(url, "/v1/x", 3) == b"abc"
            await asyncio.sleep(0.05)
        http.close()


async def test_an_empty_body_and_one_that_comes_with_its_head() -> None:
    assert await got(head(0), 0) == b""
    assert await got(head(5) + b"abcde", 5) == b"abcde"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (head(5, status="302 Found") + b"abcde", "a redirect to"),
        (head(4) + b"abcd", "4 bytes announced for a chunk of 5"),
        (head(10**12), "1000000000000 bytes announced for a chunk of 5"),
        (b"HTTP/1.1 200 OK\r\n\r\nabcde", "an unknown number of bytes announced"),
        (head(5, "Transfer-Encoding: chunked") + b"5\r\nabcde\r\n0\r\n\r\n", "an encoded body"),
        (head(5, "Content-Encoding: gzip") + b"abcde", "an encoded body"),
        (head(5) + b"abcdefgh", "more than 5 bytes"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 \xb2\xb2\xb2\r\n\r\n", "no HTTP"),
        (b"X" * (MAX_HEAD_BYTES + 1), "a head of more than"),
    ],
)
async def test_answers_that_break_the_protocol_are_the_servers_fault(answer: bytes, sentence: str) -> None:
    with pytest.raises(PeerFault, match=sentence) as caught:
        await got(answer, 5)
    assert caught.value.reason == "bad_answer"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (head(0, status="404 Not Found"), "answered 404"),
        (head(0, status="503 Busy"), "answered 503"),
        (head(len(BODY)) + BODY[:1000], f"closed the connection {len(BODY) - 1000} bytes before the end"),
        (b"", "closed the connection before it answered"),
        (b"HTTP/1.1 200", "closed the connection before it answered"),
    ],
)
async def test_a_server_that_cannot_answer_now_may_be_asked_again(answer: bytes, sentence: str) -> None:
    with pytest.raises(Transient, match=sentence):
        await got(answer)


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\n", head(len(BODY)), head(len(BODY)) + BODY[:200_000]])
async def test_silence_ends_the_call_wherever_it_falls(before: bytes) -> None:
    async def say_and_wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(before)
        await writer.drain()
        await reader.read()

    http = client(silence_s=0.2)
    async with served(say_and_wait) as url:
        with pytest.raises(Transient, match="TimeoutError"):
            await http.get(url, "/v1/x", len(BODY))
        assert not http._idle[url]


async def test_a_cancelled_call_leaves_no_half_read_connection() -> None:
    http = client(silence_s=30.0)
    async with served(answering(head(len(BODY)) + BODY[:5000])) as url:
        call = asyncio.create_task(http.get(url, "/v1/x", len(BODY)))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not http._idle[url]


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "http://no.such.host.invalid", "http://"])
async def test_nobody_there(server: str) -> None:
    with pytest.raises(Transient):
        await client().get(server, "/v1/x", 5)
