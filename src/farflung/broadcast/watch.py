"""The newest policy version, fetched in the background while the one before is in use (double buffer)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from farflung.broadcast.fetch import PolicyFetcher
from farflung.wire.manifest import Manifest

logger = logging.getLogger(__name__)

NextManifest = Callable[[int], Awaitable[Manifest | None]]
"""The newest manifest above a version, or None after a while. Raises only what should end the watch."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class FetchedPolicy:
    """A version whose every byte was checked."""

    manifest: Manifest
    files: dict[str, bytes]


class PolicyWatch:
    """Keeps the newest fetched version at hand; older ones that nobody took are skipped."""

    def __init__(self, next_manifest: NextManifest, fetcher: PolicyFetcher) -> None:
        self._next_manifest = next_manifest
        self._fetcher = fetcher
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
                    files = await self._fetcher.fetch(manifest)
                    await self._set(FetchedPolicy(manifest=manifest, files=files), None)
        except Exception as error:  # noqa: BLE001  handed to the role's main flow, whose it is to classify
            await self._set(None, error)

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
