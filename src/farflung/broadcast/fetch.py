"""Getting a policy version: only the chunks that are lacking, each checked on arrival.

This module does not know servers (the caller passes the reader), signatures or what the files mean.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field

from farflung.broadcast.progress import Progress
from farflung.errors import PeerFault, Transient
from farflung.sharding.plan import ManifestLimits, check_chunk, check_manifest, join, missing
from farflung.wire.manifest import Chunk, Manifest, ManifestFile

logger = logging.getLogger(__name__)

ChunkBytes = bytes | bytearray
"""Nobody writes to them."""
GetChunk = Callable[[str, int], Awaitable[ChunkBytes]]
"""(sha256, num_bytes) -> bytes; raises `Transient` when out of reach, and reads no more than `num_bytes`."""
Sleep = Callable[[float], Awaitable[None]]


class ChunkCache:
    """Chunks by sha256, at most `max_bytes` of them; the one used longest ago goes first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._chunks: OrderedDict[str, ChunkBytes] = OrderedDict()

    def __contains__(self, digest: object) -> bool:
        return digest in self._chunks

    def get(self, digest: str) -> ChunkBytes | None:
        data = self._chunks.get(digest)
        if data is not None:
            self._chunks.move_to_end(digest)
        return data

    def put(self, digest: str, data: ChunkBytes) -> None:
        """Keep a checked chunk; one that is larger than the whole cache is not kept."""
        self.num_bytes += len(data) - len(self._chunks.pop(digest, b""))
        self._chunks[digest] = data
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= len(self._chunks.popitem(last=False)[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchPolicy:
    """How hard to try."""

    max_concurrent: int = 4
    max_tries: int = 5
    """Per chunk, over unreachable and lying servers alike."""
    first_pause_s: float = 0.25
    """Before the second try; doubles each time."""
    limits: ManifestLimits = field(default_factory=ManifestLimits)


class PolicyFetcher:
    """Fetches version after version, reusing unchanged chunks of the ones before."""

    def __init__(
        self,
        get_chunk: GetChunk,
        cache: ChunkCache,
        policy: FetchPolicy = FetchPolicy(),
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._get_chunk = get_chunk
        self._cache = cache
        self._policy = policy
        self._sleep = sleep
        self._held: set[str] = set()

    def hold(self, sha256: str) -> None:
        """The caller keeps the content of this file: from now on it is neither fetched nor returned."""
        self._held.add(sha256)

    async def fetch(self, manifest: Manifest, names: Container[str] | None = None) -> dict[str, bytes]:
        """File name -> verified bytes, of all files or only of those in `names`, without those that are held.

        Raises:
            PeerFault: the manifest breaks its rules, or no try gave a chunk's true bytes.
            Transient: a chunk stayed out of reach.
        """
        check_manifest(manifest, self._policy.limits)
        return await self.fetch_files(
            [file for file in manifest.files if (names is None or file.name in names) and file.sha256 not in self._held]
        )

    async def fetch_files(self, files: Sequence[ManifestFile]) -> dict[str, bytes]:
        """File name -> verified bytes, of files of a manifest that was checked. Raises as `fetch`."""
        chunks = self._cached(files)
        chunks |= await self._fetch_all(missing(files, chunks))
        return {file.name: await asyncio.to_thread(join, file, chunks) for file in files}  # hashing takes its time

    @property
    def limits(self) -> ManifestLimits:
        """What manifests are held to."""
        return self._policy.limits

    def _cached(self, files: Sequence[ManifestFile]) -> dict[str, ChunkBytes]:
        digests = {chunk.sha256 for file in files for chunk in file.chunks}
        found = ((digest, self._cache.get(digest)) for digest in digests)
        return {digest: data for digest, data in found if data is not None}

    async def _fetch_all(self, wanted: Sequence[Chunk]) -> dict[str, ChunkBytes]:
        gate = asyncio.Semaphore(self._policy.max_concurrent)

        now_s = asyncio.get_running_loop().time
        progress = Progress(sum(chunk.num_bytes for chunk in wanted), now_s())

        async def fetch_one(chunk: Chunk) -> tuple[str, ChunkBytes]:
            async with gate:
                data = await self._fetch_chunk(chunk)
            if line := progress.add(chunk.num_bytes, now_s()):
                logger.info("fetching: %s", line)
            return chunk.sha256, data

        tasks = [asyncio.create_task(fetch_one(chunk)) for chunk in wanted]
        try:
            return dict(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # no request outlives this call

    async def _fetch_chunk(self, chunk: Chunk) -> ChunkBytes:
        """Kept in the cache as soon as it is there and true, so that a failed fetch is resumed, not repeated."""
        for number in range(1, self._policy.max_tries + 1):
            try:
                data = await self._get_chunk(chunk.sha256, chunk.num_bytes)
                await asyncio.to_thread(check_chunk, chunk, data)  # hashing takes its time
            except (Transient, PeerFault):
                if number == self._policy.max_tries:
                    raise
                await self._sleep(self._policy.first_pause_s * 2 ** (number - 1))
            else:
                self._cache.put(chunk.sha256, data)
                return data
        raise AssertionError("max_tries is at least 1")
