"""What a relay does: follow the newest version upstream, fetch its chunks, and have them for whoever asks.

A version is announced below as soon as its manifest is here, before its chunks are: a request for a chunk that is on
its way waits for it, so chunks run down the tree one behind the other. A newer version ends the fetching of an older
one; chunks of the older one that are still wanted are fetched when asked for.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from farflung.broadcast.swarm import Swarm
from farflung.broadcast.transport import Transport
from farflung.broadcast.trust import ManifestTrust
from farflung.errors import PeerFault, Transient
from farflung.relay.shelf import Shelf
from farflung.wire.manifest import Chunk, Manifest

logger = logging.getLogger(__name__)

KEEP_VERSIONS = 8
"""Manifests that are served, and whose chunks are not thrown away for others."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0

NowMs = Callable[[], int]


class Mirror:
    """The versions of one pool, as far as they are here."""

    def __init__(
        self,
        servers: Transport,
        swarm: Swarm,
        shelf: Shelf,
        trust: ManifestTrust,
        *,
        upstream: Sequence[str],
        max_concurrent: int,
        poll_s: float,
        now_ms: NowMs,
    ) -> None:
        self._servers = servers
        self._swarm = swarm
        self._shelf = shelf
        self._trust = trust
        self._upstream = upstream
        self._max_concurrent = max_concurrent
        self._poll_s = poll_s
        self._now_ms = now_ms
        self._manifests: dict[int, Manifest] = {}
        self._sizes: dict[str, int] = {}  # of every chunk of the kept versions
        self._coming: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Condition()
        self._filling: asyncio.Task[None] | None = None

    @property
    def newest_version(self) -> int:
        return self._trust.newest_version

    async def run(self) -> None:
        """Follow every upstream until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for server in self._upstream:
                    group.create_task(self._follow(server))
        finally:
            await self._end([*self._coming.values(), *([] if self._filling is None else [self._filling])])

    def manifest(self, version: int) -> Manifest | None:
        return self._manifests.get(version)

    async def newer_manifest(self, newer_than: int, wait_s: float) -> Manifest | None:
        """The newest one once it is above `newer_than`; None when `wait_s` passed first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self.newest_version > newer_than)
        return self._manifests.get(self.newest_version) if self.newest_version > newer_than else None

    async def chunk(self, sha256: str, wait_s: float) -> Path | None:
        """The file of a chunk; None if no kept version has it.

        Raises:
            Transient: it did not come in `wait_s`.
        """
        path = await asyncio.to_thread(self._shelf.path, sha256)
        if path is not None or sha256 not in self._sizes:
            return path
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.shield(self._fetching(sha256))
        except TimeoutError:
            raise Transient(f"chunk {sha256} is still on its way here") from None
        return await asyncio.to_thread(self._shelf.path, sha256)

    async def _follow(self, server: str) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                manifest = await self._servers.latest_manifest(server, self.newest_version, self._poll_s)
                if manifest is not None and self._trust.check(manifest, self._now_ms()):
                    await self._take(manifest, server)
                pause_s = _FIRST_PAUSE_S
            except Transient as problem:
                logger.info("%s: %s; looking again in %.1f s", server, problem, pause_s)
            except PeerFault as fault:
                logger.warning("%s told of a version that is not to be believed: %s", server, fault)
            else:
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    async def _take(self, manifest: Manifest, server: str) -> None:
        version = manifest.policy_version
        self._manifests[version] = manifest
        for old in sorted(self._manifests)[:-KEEP_VERSIONS]:
            del self._manifests[old]
        self._sizes = {chunk.sha256: chunk.num_bytes for kept in self._manifests.values() for chunk in _chunks(kept)}
        wanted = [chunk for chunk in _chunks(manifest) if chunk.sha256 not in self._shelf]
        num_bytes = sum(chunk.num_bytes for chunk in wanted)
        logger.info("version %d from %s: %d chunks, %d bytes to fetch", version, server, len(wanted), num_bytes)
        if self._filling is not None:
            self._filling.cancel()
        self._filling = asyncio.create_task(self._fill(version, wanted))
        async with self._changed:
            self._changed.notify_all()

    async def _fill(self, version: int, wanted: Sequence[Chunk]) -> None:
        """Fetch what a version lacks, in the order of its files."""
        gate = asyncio.Semaphore(self._max_concurrent)

        async def fetch(chunk: Chunk) -> None:
            async with gate:
                await asyncio.shield(self._fetching(chunk.sha256))

        try:
            async with asyncio.TaskGroup() as group:
                for chunk in wanted:
                    group.create_task(fetch(chunk))
        except* (Transient, PeerFault) as problems:
            logger.warning("version %d is not whole here: %s", version, problems.exceptions[0])
        else:
            logger.info("version %d is here", version)

    def _fetching(self, sha256: str) -> "asyncio.Task[None]":
        """The one task that fetches a chunk, however many wait for it."""
        task = self._coming.get(sha256)
        if task is None:
            task = self._coming[sha256] = asyncio.create_task(self._fetch(sha256))
            task.add_done_callback(lambda done: self._came(sha256, done))
        return task

    async def _fetch(self, sha256: str) -> None:
        if sha256 in self._shelf:
            return
        data = await self._swarm.get_chunk(sha256, self._sizes[sha256])
        await asyncio.to_thread(self._shelf.put, sha256, data, self._sizes)

    def _came(self, sha256: str, task: "asyncio.Task[None]") -> None:
        del self._coming[sha256]
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have waited

    async def _end(self, tasks: Sequence["asyncio.Task[None]"]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _chunks(manifest: Manifest) -> list[Chunk]:
    return [chunk for file in manifest.promised_files for chunk in file.chunks]
