"""The newest policy version, fetched in the background while the one before is in use (double buffer)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from farflung.broadcast.fetch import PolicyFetcher
from farflung.errors import PeerFault, Transient
from farflung.wire.canonical import MALFORMED_RECORD
from farflung.wire.manifest import Manifest

logger = logging.getLogger(__name__)

NextManifest = Callable[[int], Awaitable[Manifest | None]]
"""The newest manifest above a version, or None after a while. Raises only what should end the watch."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class FetchedPolicy:
    """A version whose every byte was checked."""

    manifest: Manifest
    files: dict[str, bytes]
    """Without those that the fetcher was told to leave out."""

    def sha256_of(self, name: str) -> str:
        """Of a file of the version, fetched or not. Raises `PeerFault` if it has no such file."""
        for file in self.manifest.files:
            if file.name == name:
                return file.sha256
        raise PeerFault(MALFORMED_RECORD, f"version {self.manifest.policy_version} has no file {name}")


class PolicyWatch:
    """Keeps the newest fetched version at hand; older ones that nobody took are skipped.

    A version whose chunks are out of reach is no end: by the next look a newer one may be there, and chunks that came
    already are not fetched again. How long that may go on is up to `next_manifest`.
    """

    def __init__(self, next_manifest: NextManifest, fetcher: PolicyFetcher, *, pause_s: float = 1.0) -> None:
        self._next_manifest = next_manifest
        self._fetcher = fetcher
        self._pause_s = pause_s
        self._newest: FetchedPolicy | None = None
        self._changed = asyncio.Condition()
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Watch until cancelled; an error is kept and raised to whoever waits in `newer_than`."""
        try:
            while True:
                version = -1 if self._newest is None else self._newest.manifest.policy_version
                manifest = await self._next_manifest(version)
                if manifest is not None:
                    await self._fetch(manifest)
        except Exception as error:  # noqa: BLE001  handed to the role's main flow, whose it is to classify
            await self._set(None, error)

    async def _fetch(self, manifest: Manifest) -> None:
        try:
            files = await self._fetcher.fetch(manifest)
        except Transient as error:
            logger.info("version %d: %s; looking again", manifest.policy_version, error)
            await asyncio.sleep(self._pause_s)
        else:
            await self._set(FetchedPolicy(manifest=manifest, files=files), None)

    async def newer_than(self, version: int) -> FetchedPolicy:
        """Wait for a version above `version`. Raises what ended the watch."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._error is not None or self.peek(version) is not None)
            if self._error is not None:
                raise self._error
            assert self._newest is not None
            return self._newest

    def peek(self, version: int) -> FetchedPolicy | None:
        """A fetched version above `version`, if there is one now."""
        newest = self._newest
        return newest if newest is not None and newest.manifest.policy_version > version else None

    async def _set(self, policy: FetchedPolicy | None, error: BaseException | None) -> None:
        async with self._changed:
            self._newest, self._error = policy or self._newest, error
            self._changed.notify_all()
