"""What a relay does: follow the newest version upstream, fetch its chunks, and have them for whoever asks.

A version is announced below as soon as its manifest is here, before its chunks are: a request for a chunk that is on
its way waits for it, so chunks run down the tree one behind the other. A newer version ends the fetching of an older
one; what is still wanted of that comes after the newer one, or when it is asked for. Old manifests are believed because
a newer one names their digest.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from farflung.broadcast.shelf import Shelf
from farflung.broadcast.swarm import Swarm
from farflung.broadcast.transport import Transport
from farflung.broadcast.trust import ManifestTrust, check_before
from farflung.errors import PeerFault, Transient
from farflung.relay.keeping import chunks_of, kept_sizes, oldest_kept
from farflung.sharding.plan import check_manifest
from farflung.wire.manifest import Manifest

logger = logging.getLogger(__name__)

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
        max_disk_bytes: int,
        max_concurrent: int,
        poll_s: float,
        now_ms: NowMs,
    ) -> None:
        self._servers = servers
        self._swarm = swarm
        self._shelf = shelf
        self._trust = trust
        self._max_disk_bytes = max_disk_bytes
        self._max_concurrent = max_concurrent
        self._poll_s = poll_s
        self._now_ms = now_ms
        self._manifests: dict[int, Manifest] = {}
        self._sizes: dict[str, int] = {}  # of every chunk that is kept
        self._oldest_in_use: int | None = None
        self._coming: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Condition()
        self._filling: asyncio.Task[None] | None = None
        self._upstream: tuple[str, ...] = ()
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._broken = asyncio.Event()

    @property
    def newest_version(self) -> int:
        return self._trust.newest_version

    @property
    def liars(self) -> tuple[str, ...]:
        """Servers that sent other bytes than a chunk's."""
        return tuple(sorted(self._swarm.book.liars))

    async def run(self) -> None:
        """Follow every upstream until cancelled. Raises what a follower did not expect."""
        try:
            await self._broken.wait()
            for follower in self._followers.values():
                if follower.done():
                    follower.result()
        finally:
            filling = [] if self._filling is None else [self._filling]
            await _end([*self._followers.values(), *self._coming.values(), *filling])

    def follow(self, origin: str, relays: Sequence[str]) -> None:
        """Whom to fetch from, from now on.

        Args:
            origin: asked for chunks last.
            relays: nearest first.
        """
        upstream = (*relays, origin)
        if upstream == self._upstream:
            return
        logger.info("fetching from %s", ", then ".join(upstream))
        self._upstream = upstream
        self._swarm.book.offer(relays)
        for server in self._followers.keys() - set(upstream):
            self._followers.pop(server).cancel()
        for server in upstream:
            if server not in self._followers:
                task = self._followers[server] = asyncio.create_task(self._follow(server))
                task.add_done_callback(self._ended)

    def keep_from(self, oldest_in_use: int) -> None:
        """Versions from this one on are kept, as far as there is room; the others make room."""
        if oldest_in_use != self._oldest_in_use:
            self._oldest_in_use = oldest_in_use
            self._settle()

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
        self._settle()
        logger.info("version %d from %s: %d bytes to fetch", version, server, self._num_lacking(manifest))
        if self._filling is not None:
            self._filling.cancel()
        self._filling = asyncio.create_task(self._fill(version))
        async with self._changed:
            self._changed.notify_all()

    def _settle(self) -> None:
        """Drop what is not in use any more, and see what there is room for."""
        oldest = oldest_kept(self.newest_version, self._oldest_in_use)
        self._manifests = {version: kept for version, kept in self._manifests.items() if version >= oldest}
        self._sizes = kept_sizes(self._manifests, self._max_disk_bytes)
        newest = self._manifests.get(self.newest_version)
        num_left_out = 0 if newest is None else sum(chunk.sha256 not in self._sizes for chunk in chunks_of(newest))
        if num_left_out:
            logger.warning("relay.max_disk_bytes has no room for %d chunks of the newest version", num_left_out)

    def _num_lacking(self, manifest: Manifest) -> int:
        return sum(chunk.num_bytes for chunk in chunks_of(manifest) if chunk.sha256 not in self._shelf)

    async def _fill(self, version: int) -> None:
        """Fetch what is lacking: of the newest version in the order of its files, then of those before it."""
        try:
            await self._fetch_all([chunk.sha256 for chunk in chunks_of(self._manifests[version])])
            logger.info("version %d is here", version)
            await self._look_back(version)
            await self._fetch_all(list(self._sizes))
        except* (Transient, PeerFault) as problems:
            logger.warning("version %d is not whole here: %s", version, problems.exceptions[0])

    async def _look_back(self, version: int) -> None:
        """Get the manifests before a version, as far back as they are to be kept."""
        newer = self._manifests[version]
        oldest = oldest_kept(self.newest_version, self._oldest_in_use)
        for number in range(version - 1, oldest - 1, -1):
            found = self._manifests.get(number) or await self._older(number, newer)
            if found is None:
                break
            self._manifests[number] = newer = found
        self._settle()

    async def _older(self, number: int, newer: Manifest) -> Manifest | None:
        """The manifest before one that is believed; None if nobody has it."""
        for server in self._upstream:
            try:
                found = await self._servers.manifest(server, number)
                if found is not None:
                    check_manifest(found, self._trust.limits)
                    check_before(found, newer)
                    return found
            except (Transient, PeerFault) as problem:
                logger.info("%s: the manifest of version %d: %s", server, number, problem)
        return None

    async def _fetch_all(self, digests: Iterable[str]) -> None:
        gate = asyncio.Semaphore(self._max_concurrent)

        async def fetch(sha256: str) -> None:
            async with gate:
                if sha256 in self._sizes:
                    await asyncio.shield(self._fetching(sha256))

        async with asyncio.TaskGroup() as group:
            for sha256 in digests:
                if sha256 not in self._shelf:
                    group.create_task(fetch(sha256))

    def _fetching(self, sha256: str) -> "asyncio.Task[None]":
        """The one task that fetches a chunk that is to be kept, however many wait for it."""
        task = self._coming.get(sha256)
        if task is None:
            task = self._coming[sha256] = asyncio.create_task(self._fetch(sha256, self._sizes[sha256]))
            task.add_done_callback(lambda done: self._came(sha256, done))
        return task

    async def _fetch(self, sha256: str, num_bytes: int) -> None:
        if sha256 in self._shelf:
            return
        data = await self._swarm.get_chunk(sha256, num_bytes)
        await asyncio.to_thread(self._shelf.put, sha256, data, self._sizes)

    def _came(self, sha256: str, task: "asyncio.Task[None]") -> None:
        del self._coming[sha256]
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have waited

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self._broken.set()


async def _end(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
