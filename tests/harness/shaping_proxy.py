"""A TCP proxy before a server, which makes its network worse: slow, far away, lossy, silent, gone, or lying.

    client <---- latency, loss, link of the client <---- rate of the server <---- server

Rates are of the answers. Loss is what it is to whoever reads a stream: a piece that comes a retransmission later, and
everything behind it too. How it behaves may change while connections are open.
"""

import asyncio
import math
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

PIECE_BYTES = 1 << 16
RETRANSMISSION_S = 0.2
DRIP_S = 0.2
"""Between two bytes of a slow loris."""

Mode = Literal["honest", "gone", "silent", "drip", "lie"]
"""
gone: connections are reset
silent: connections are taken and nothing is ever answered
drip: the head of an answer comes, then a byte at a time
lie: one bit of every answer's body is another
"""


class Link:
    """A wire of some bytes/s, which connections share."""

    def __init__(self, rate: float = math.inf) -> None:
        self.rate = rate
        self._free_s = 0.0

    async def take(self, num_bytes: int) -> None:
        """Wait until so many bytes have gone through."""
        now_s = asyncio.get_running_loop().time()
        self._free_s = max(now_s, self._free_s) + num_bytes / self.rate
        if self._free_s > now_s:
            await asyncio.sleep(self._free_s - now_s)


@dataclass(kw_only=True, eq=False)
class ShapingProxy:
    """One server's way to one client."""

    server: str
    """URL."""
    mode: Mode = "honest"
    link: Link = field(default_factory=Link)
    """Of the server."""
    client: Link = field(default_factory=Link)
    """Of whoever reads; may be shared with other proxies."""
    latency_s: float = 0.0
    """One way."""
    loss: float = 0.0
    """Share of the pieces that are sent twice."""
    num_bytes: int = 0
    """That went to the client."""
    num_connections: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Bytes have gone to the client."""
    url: str = ""
    _dice: random.Random = field(default_factory=lambda: random.Random(0))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            if self.mode == "gone":
                writer.transport.abort()
                return
            parts = urlsplit(self.server)
            up_reader, up_writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._requests(reader, up_writer))
                    group.create_task(self._answers(up_reader, writer))
            finally:
                up_writer.close()
        except* (OSError, asyncio.IncompleteReadError, _OverError):
            pass
        finally:
            writer.close()

    async def _requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while piece := await source.read(PIECE_BYTES):
            await asyncio.sleep(self.latency_s)
            sink.write(piece)
            await sink.drain()
        raise _OverError

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take_off(source, queue))
            group.create_task(self._land(queue, sink))

    async def _take_off(self, source: asyncio.StreamReader, queue: "asyncio.Queue[tuple[float, bytes]]") -> None:
        now_s = asyncio.get_running_loop().time
        liar = _Liar()
        while piece := await source.read(PIECE_BYTES):
            await self.link.take(len(piece))
            await self.client.take(len(piece))
            altered = liar.altered(piece)
            is_lost = self._dice.random() < self.loss
            due_s = now_s() + self.latency_s + is_lost * RETRANSMISSION_S
            await queue.put((due_s, altered if self.mode == "lie" else piece))
        await queue.put((0.0, b""))

    async def _land(self, queue: "asyncio.Queue[tuple[float, bytes]]", sink: asyncio.StreamWriter) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            due_s, piece = await queue.get()
            await asyncio.sleep(max(0.0, due_s - now_s()))
            if self.mode == "silent":
                await asyncio.Event().wait()
            if self.mode == "gone":
                sink.transport.abort()
                raise _OverError
            if not piece:
                raise _OverError
            for part in _drops(piece) if self.mode == "drip" else (piece,):
                sink.write(part)
                self.num_bytes += len(part)
                self.answered.set()
                await sink.drain()
                if len(part) == 1 and self.mode == "drip":
                    await asyncio.sleep(DRIP_S)


@asynccontextmanager
async def shaping(proxy: ShapingProxy) -> AsyncIterator[ShapingProxy]:
    """The proxy listens on loopback, and leaves no connection behind."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(asyncio.CancelledError):
                await proxy.answer(reader, writer)
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 18)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _OverError(Exception):
    """One side has closed."""


class _Liar:
    """Follows the answers of one connection, and flips a bit in the middle of each body."""

    def __init__(self) -> None:
        self._head = b""
        self._body_left = 0

    def altered(self, piece: bytes) -> bytes:
        made = bytearray(piece)
        at = 0
        while at < len(made):
            if self._body_left:
                at += (taken := min(self._body_left, len(made) - at))
                self._body_left -= taken
                if not self._body_left:
                    made[at - 1] ^= 1
                continue
            self._head += bytes(made[at : at + 1])
            at += 1
            if self._head.endswith(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: *(\d+)", self._head)
                self._body_left, self._head = int(length[1]) if length else 0, b""
        return bytes(made)


def _drops(piece: bytes) -> list[bytes]:
    """The head of an answer at once, all else a byte at a time."""
    end = piece.find(b"\r\n\r\n") + 4 if piece.startswith(b"HTTP/") else 0
    return (
        [piece[:end], *(piece[at : at + 1] for at in range(end, len(piece)))]
        if end
        else [piece[at : at + 1] for at in range(len(piece))]
    )
