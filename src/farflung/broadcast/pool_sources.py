"""Chunks for a worker or validator: from the relays that its coordinator names, and from itself where they fail.

    every REFRESH_S, or after a lie    liars ->  coordinator  -> a few relays
    a chunk                            the best of them, hedged (`broadcast.swarm`), the coordinator last

The list is advice from somebody who may be wrong; what a chunk is its hash decides. Without relays every chunk comes
from the coordinator. Does not know HTTP or how the coordinator is asked.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence

from farflung.broadcast.fetch import ChunkBytes, GetChunk
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import AskServer, Clock, Swarm
from farflung.errors import FarflungError, PeerFault, Transient
from farflung.wire.relay import MAX_COMPLAINTS

logger = logging.getLogger(__name__)

REFRESH_S = 10.0
LIST_S = 3.0
"""Longest wait for a list, before the fetch goes on with the one before."""

ListRelays = Callable[[tuple[str, ...]], Awaitable[Sequence[str]]]
"""(servers that lied) -> relays to ask; raises `FarflungError`."""


class PoolSources:
    """The servers of one process."""

    def __init__(
        self, coordinator: str, ask_coordinator: GetChunk, list_relays: ListRelays, ask_relay: AskServer, clock: Clock
    ) -> None:
        """
        Args:
            coordinator: its name in log lines.
            ask_coordinator: what it raises beside `Transient` and `PeerFault` ends the fetch of the chunk.
        """
        self._coordinator = coordinator
        self._ask_coordinator = ask_coordinator
        self._list_relays = list_relays
        self._ask_relay = ask_relay
        self._clock = clock
        self._book = SourceBook(coordinator)
        self._swarm = Swarm(self._ask, self._book, clock)
        self._relays: tuple[str, ...] = ()
        self._listed_at_s = -math.inf
        self._told: frozenset[str] = frozenset()
        self._one_at_a_time = asyncio.Lock()

    async def get_chunk(self, sha256: str, num_bytes: int) -> ChunkBytes:
        """The chunk's true bytes. Raises as `Swarm.get_chunk`, and what the coordinator's refusals are."""
        async with self._one_at_a_time:
            if self._clock() >= self._listed_at_s + REFRESH_S or self._liars - self._told:
                await self._refresh()
        if not self._relays:
            return await self._ask_coordinator(sha256, num_bytes)
        return await self._swarm.get_chunk(sha256, num_bytes)

    def log_totals(self) -> None:
        """Who sent how much, for whoever reads the log afterwards."""
        for server, num_bytes in self._book.bytes_from.items():
            if num_bytes:
                logger.info("%d chunk bytes came from %s", num_bytes, server)

    @property
    def _liars(self) -> frozenset[str]:
        return frozenset(self._book.liars) - {self._coordinator}

    async def _refresh(self) -> None:
        liars = self._liars
        self._listed_at_s = self._clock()
        try:
            async with asyncio.timeout(LIST_S):
                found = await self._list_relays(tuple(sorted(liars))[:MAX_COMPLAINTS])
        except (FarflungError, TimeoutError) as error:
            logger.info("no list of relays: %s", error or "the coordinator is slow")
            return
        self._told = liars
        relays = tuple(url for url in found if url not in liars)
        if relays != self._relays:
            logger.info("fetching from %s", ", ".join(relays) or "the coordinator alone")
        self._relays = relays
        self._book.offer(relays)

    async def _ask(self, server: str, sha256: str, num_bytes: int) -> ChunkBytes:
        if server != self._coordinator:
            return await self._ask_relay(server, sha256, num_bytes)
        try:
            return await self._ask_coordinator(sha256, num_bytes)
        except PeerFault as fault:  # there is nobody else to fall back to: it is asked again
            raise Transient(str(fault)) from fault
