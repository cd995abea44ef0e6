"""The newest policy version, fetched in the background while the one before is in use (double buffer)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from farflung.broadcast.fetched import FetchedPolicy
from farflung.errors import Transient
from farflung.wire.manifest import Manifest

logger = logging.getLogger(__name__)

NextManifest = Callable[[int], Awaitable[Manifest | None]]
"""The newest manifest above a version, or None after a while. Raises only what should end the watch."""
Fetch = Callable[[Manifest], Awaitable[FetchedPolicy]]
"""Gets the files of a version."""


class PolicyWatch:
    """Keeps the newest fetched version at hand; older ones that nobody took are skipped.

    A version whose chunks are out of reach is no end: by the next look a newer one may be there, and chunks that came
    already are not fetched again. How long that may go on is up to `next_manifest`.
    """

    def __init__(self, next_manifest: NextManifest, fetch: Fetch, *, pause_s: float = 1.0) -> None:
        self._next_manifest = next_manifest
        self._fetch_files = fetch
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
            fetched = await self._fetch_files(manifest)
        except Transient as error:
            logger.info("version %d: %s; looking again", manifest.policy_version, error)
            await asyncio.sleep(self._pause_s)
        else:
            await self._set(fetched, None)

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
