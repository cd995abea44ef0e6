"""One chunk from the best of several servers, with a second request where the first one lingers.

Every answer is checked against the chunk's hash before anybody sees it; who sends other bytes is named and not asked
again. Does not know HTTP: the caller passes what asks one server.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from farflung.broadcast.fetch import ChunkBytes
from farflung.broadcast.sources import SourceBook
from farflung.errors import PeerFault, Transient
from farflung.wire.canonical import sha256_hex

logger = logging.getLogger(__name__)

AskServer = Callable[[str, str, int], Awaitable[ChunkBytes]]
"""(server, sha256, num_bytes) -> bytes, unchecked; reads no more than `num_bytes` + 1, follows no redirect. Raises
`Transient` when the server does not answer or has no such chunk, `PeerFault` when its answer breaks the protocol."""
Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmPolicy:
    """When to ask a second server."""

    hedge_factor: float = 3.0
    """A request that takes this many times what was expected gets company."""
    min_hedge_s: float = 0.2
    max_hedge_s: float = 10.0
    give_up_s: float = 120.0
    """For one chunk, over all servers."""


@dataclass(slots=True, eq=False)
class _Request:
    server: str
    started_s: float
    task: "asyncio.Task[ChunkBytes | None]"
    is_settled: bool = False
    """The book knows how it went."""


class Swarm:
    """The servers of one client."""

    def __init__(self, ask: AskServer, book: SourceBook, clock: Clock, policy: SwarmPolicy = SwarmPolicy()) -> None:
        self._ask = ask
        self.book = book
        self._clock = clock
        self._policy = policy

    async def get_chunk(self, sha256: str, num_bytes: int) -> ChunkBytes:
        """The chunk's true bytes.

        Raises:
            Transient: no server gave them in `give_up_s`.
            PeerFault: all servers have lied.
        """
        running: list[_Request] = []
        deadline_s = self._clock() + self._policy.give_up_s
        try:
            while (now_s := self._clock()) < deadline_s:
                if now_s >= self._hedge_due_s(running, num_bytes):
                    self._start_one(sha256, num_bytes, running)
                if not running:
                    await self._rest()
                    continue
                await asyncio.wait(
                    [request.task for request in running],
                    timeout=self._policy.min_hedge_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for request in [request for request in running if request.task.done()]:
                    running.remove(request)
                    data = request.task.result()
                    if data is not None:
                        self._note_overtaken(running, request, num_bytes)
                        return data
        finally:
            await self._abandon(running)
        raise Transient(f"no server gave chunk {sha256} in {self._policy.give_up_s:g} s")

    def _hedge_due_s(self, running: list[_Request], num_bytes: int) -> float:
        """When to ask one more server; what is expected of the last one follows what the others show meanwhile."""
        if not running:
            return -math.inf
        last, policy = running[-1], self._policy
        patience_s = policy.hedge_factor * self.book.expected_s(last.server, num_bytes, self._clock())
        return last.started_s + min(policy.max_hedge_s, max(policy.min_hedge_s, patience_s))

    def _start_one(self, sha256: str, num_bytes: int, running: list[_Request]) -> None:
        """Ask one more server, if one is fit."""
        name = self.book.choose(self._clock(), {request.server for request in running})
        if name is not None:
            self.book.asked(name)
            running.append(_Request(name, self._clock(), asyncio.create_task(self._try(name, sha256, num_bytes))))

    def _note_overtaken(self, running: list[_Request], winner: _Request, num_bytes: int) -> None:
        for request in running:
            if request.started_s >= winner.started_s or request.task.done():
                continue
            self.book.overtaken(request.server, num_bytes, request.started_s, self._clock())
            request.is_settled = True

    async def _rest(self) -> None:
        pause_s = self.book.ready_in_s(self._clock())
        if math.isinf(pause_s):
            raise PeerFault("chunk_digest", f"every server has sent wrong chunks: {dict(self.book.liars)}")
        await asyncio.sleep(max(0.01, pause_s))

    async def _try(self, name: str, sha256: str, num_bytes: int) -> ChunkBytes | None:
        """The chunk from one server; None, with a note in the book, if it did not come."""
        started_s = self._clock()
        try:
            data = await self._ask(name, sha256, num_bytes)
            found = await asyncio.to_thread(sha256_hex, data)
        except Transient as problem:
            logger.info("%s: chunk %s: %s", name, sha256[:12], problem)
            self.book.failed(name, self._clock())
            return None
        except PeerFault as fault:
            self._drop(name, str(fault))
            return None
        if found != sha256:
            self._drop(name, f"{len(data)} bytes with sha256 {found} for chunk {sha256} of {num_bytes} bytes")
            return None
        self.book.answered(name, num_bytes, self._clock() - started_s)
        return data

    def _drop(self, name: str, detail: str) -> None:
        logger.warning("%s sent %s: it is not asked again", name, detail)
        self.book.lied(name, detail)

    async def _abandon(self, running: list[_Request]) -> None:
        """No request outlives its chunk."""
        for request in running:
            if not (request.is_settled or request.task.done()):
                self.book.left(request.server)
            request.task.cancel()
        await asyncio.gather(*(request.task for request in running), return_exceptions=True)
