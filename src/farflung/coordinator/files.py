"""Rollout files, evidence and chunks in the store, off the event loop; and which of them are garbage.

Keys: `rollouts/<version>/<lease>-<token>.parquet`, `evidence/<digest>.json`, `chunks/<sha256>`, `ledger/...`. This
module does not know who may read or write what.
"""

import asyncio
from pathlib import Path

from farflung.api.routes import MAX_CHUNK_BYTES, evidence_key
from farflung.errors import Transient
from farflung.store.base import Store
from farflung.wire.canonical import sha256_hex
from farflung.wire.history import FOLDER, MAX_SEGMENT_BYTES
from farflung.wire.manifest import Manifest
from farflung.wire.verdict import EvidenceBundle

CHUNKS, ROLLOUTS, EVIDENCE = "chunks", "rollouts", "evidence"
UNUSED_VERSIONS = 2
"""Publications that a chunk outlives without belonging to a fetchable version: it may be for the next one."""


class Files:
    """What the coordinator keeps in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._digests: dict[str, str] = {}  # key -> sha256 of uploads that no submission names yet
        self._busy: set[str] = set()
        self._unused_since: dict[str, int] = {}  # sha256 of chunks outside fetchable versions -> newest version then
        self._old_since: dict[str, int] = {}  # keys that no slot needs -> newest version when that was seen first
        self.versions = asyncio.Lock()
        """Held while a version is made fetchable, so that no chunk of it is collected meanwhile."""

    async def put_upload(self, key: str, data: bytes) -> None:
        """Store a rollout file, in place of an earlier upload under the key.

        Raises:
            Transient: another upload of this key is in progress.
        """
        digest = await asyncio.to_thread(sha256_hex, data)
        if key in self._busy:
            raise Transient(f"{key} is being uploaded by another connection")
        if self._digests.get(key) == digest:
            return
        self._busy.add(key)
        try:
            await asyncio.to_thread(self._replace, key, data)
            self._digests[key] = digest
        finally:
            self._busy.discard(key)

    async def upload_digest(self, key: str, num_bytes: int) -> str | None:
        """sha256 of the uploaded file; None when there is none of this size.

        Raises:
            Transient: it is being replaced right now.
        """
        if key in self._busy:
            raise Transient(f"{key} is being uploaded")
        if await asyncio.to_thread(self._store.size, key) != num_bytes:
            return None
        if key not in self._digests:  # uploaded before this process started
            data = await asyncio.to_thread(self._store.get, key, max_bytes=num_bytes)
            self._digests[key] = await asyncio.to_thread(sha256_hex, data)
        return self._digests[key]

    def forget_upload(self, key: str) -> None:
        """A submission names it now: it is what it is."""
        self._digests.pop(key, None)

    async def get(self, key: str, max_bytes: int) -> bytes:
        """Raises `KeyError` when absent."""
        return await asyncio.to_thread(self._store.get, key, max_bytes=max_bytes)

    async def ledger_keys(self) -> list[str]:
        """Of what was published of the journal."""
        return await asyncio.to_thread(self._store.keys, FOLDER)

    async def put_ledger(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._store.put, key, data)

    async def get_ledger(self, key: str) -> bytes:
        """Raises `KeyError` when absent."""
        return await self.get(key, MAX_SEGMENT_BYTES)

    async def put_evidence(self, evidence: EvidenceBundle) -> None:
        """Under its digest, so the same bundle again is the same object."""
        await asyncio.to_thread(self._store.put, evidence_key(evidence.digest()), evidence.to_bytes())

    async def put_chunk(self, sha256: str, data: bytes | bytearray, newest: int) -> None:
        """The caller has checked the hash. `newest` is the newest version so far."""
        async with self.versions:
            self._unused_since[sha256] = newest  # from now on it is collected only when it is old again
        await asyncio.to_thread(self._store.put, f"{CHUNKS}/{sha256}", data)

    def chunk_path(self, sha256: str) -> Path | None:
        """Where a chunk lies if it is there and the store is a local folder."""
        return self._store.local_path(f"{CHUNKS}/{sha256}")

    async def chunk_size(self, sha256: str) -> int | None:
        """Bytes of a chunk; None when it is absent."""
        return await asyncio.to_thread(self._store.size, f"{CHUNKS}/{sha256}")

    async def get_chunk(self, sha256: str) -> bytes:
        """Raises `KeyError` when absent."""
        return await self.get(f"{CHUNKS}/{sha256}", MAX_CHUNK_BYTES)

    async def missing_chunk(self, manifest: Manifest) -> str | None:
        """Hash of a chunk that is promised and not there in the size that it says. To be called under `versions`."""
        sizes = {chunk.sha256: chunk.num_bytes for file in manifest.promised_files for chunk in file.chunks}
        return await asyncio.to_thread(self._first_missing, sizes)

    async def collect_chunks(self, in_use: set[str], newest: int) -> None:
        """Delete chunks that have belonged to no fetchable version for a while. To be called under `versions`."""
        await asyncio.to_thread(self._collect, in_use, newest)

    async def collect_old(self, in_use: set[str], newest: int, keep_versions: int) -> int:
        """Delete rollout files and evidence that nothing has needed for `keep_versions` versions; how many.

        Also what no slot knows: uploads of leases that a crash has forgotten.
        """
        return await asyncio.to_thread(self._collect_old, in_use, newest, keep_versions)

    async def delete(self, key: str) -> None:
        """An absent one is no error."""
        self._digests.pop(key, None)
        await asyncio.to_thread(self._store.delete, key)

    def _collect_old(self, in_use: set[str], newest: int, keep_versions: int) -> int:
        found = {key for folder in (ROLLOUTS, EVIDENCE) for key in self._store.keys(folder)}
        unused = {key: self._old_since.get(key, newest) for key in found - in_use}
        old = [key for key, since in unused.items() if newest - since >= keep_versions]
        for key in old:
            self._store.delete(key)
            del unused[key]
        self._old_since = unused
        return len(old)

    def _replace(self, key: str, data: bytes) -> None:
        if self._store.size(key) is not None:
            self._store.delete(key)
        self._store.put(key, data)

    def _first_missing(self, sizes: dict[str, int]) -> str | None:
        for sha256, num_bytes in sizes.items():
            if self._store.size(f"{CHUNKS}/{sha256}") != num_bytes:
                return sha256
        return None

    def _collect(self, in_use: set[str], newest: int) -> None:
        found = {key.removeprefix(f"{CHUNKS}/") for key in self._store.keys(CHUNKS)}
        unused = {sha256: self._unused_since.get(sha256, newest) for sha256 in found - in_use}
        for sha256 in [sha256 for sha256, since in unused.items() if newest - since >= UNUSED_VERSIONS]:
            self._store.delete(f"{CHUNKS}/{sha256}")
            del unused[sha256]
        self._unused_since = unused
