"""The asynchronous shell of an event log: order at once, durability soon, one transaction for all who wait.

    sequence = commits.enqueue(kind, body, at_ms)     the order is fixed; state may be stepped
    await commits.committed()                         on disk with everything before it; the caller may acknowledge

While one transaction is being written, further entries gather for the next: a disk that syncs 200 times a second
carries thousands of acknowledgements a second. After a failed write the memory is ahead of the log, so nothing works
any more: every call raises the `OurFault`, and the process has to start again from the log.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from farflung.errors import OurFault
from farflung.state.event_log import Entry, EventLog

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class GroupCommit:
    """Owns the log's one writing thread. To be made, used and closed on one event loop.

    Args:
        log: already replayed.
        next_sequence: of the first entry that will be appended.
    """

    def __init__(self, log: EventLog, next_sequence: int) -> None:
        self.next_sequence = next_sequence
        self.failed: asyncio.Future[OurFault] = asyncio.get_running_loop().create_future()
        """Done when a write failed."""
        self._log = log
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="event-log")
        self._gathered: list[Entry] = []
        self._gathered_done: asyncio.Future[None] | None = None
        self._writing_done: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    def enqueue(self, kind: str, body: bytes, at_ms: int) -> int:
        """Take the next place in the log; returns its sequence. Not durable yet.

        Raises:
            OurFault: an earlier write failed.
        """
        self.raise_if_failed()
        sequence = self.next_sequence
        self.next_sequence += 1
        self._gathered.append(Entry(sequence=sequence, at_ms=at_ms, kind=kind, body=body))
        if self._gathered_done is None:
            self._gathered_done = asyncio.get_running_loop().create_future()
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all(), name="event log writer")
        return sequence

    async def committed(self) -> None:
        """Return once everything that was enqueued before this call is durable.

        Raises:
            OurFault: it is not, and will not be.
        """
        done = self._gathered_done or self._writing_done
        if done is not None:
            await asyncio.shield(done)
        self.raise_if_failed()

    async def append(self, kind: str, body: bytes, at_ms: int) -> int:
        """`enqueue`, then `committed`."""
        sequence = self.enqueue(kind, body, at_ms)
        await self.committed()
        return sequence

    async def in_log(self, call: Callable[[EventLog], Answer]) -> Answer:
        """Carry out a call on the log between two writes. What it raises passes through."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, self._log)

    async def close(self) -> None:
        """Write what is left and close the log."""
        if self._writer is not None:
            await self._writer
        await asyncio.get_running_loop().run_in_executor(self._thread, self._log.close)
        self._thread.shutdown(wait=False)

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._gathered_done is not None:
            entries, done = self._gathered, self._gathered_done
            self._gathered, self._gathered_done, self._writing_done = [], None, done
            try:
                await loop.run_in_executor(self._thread, self._log.write, entries)
            except Exception as error:  # whatever it is, the memory is ahead of the log now
                logger.exception("entries %d to %d are not written", entries[0].sequence, entries[-1].sequence)
                fault = error if isinstance(error, OurFault) else OurFault(f"event log: {error!r}")
                self.failed.set_result(fault)
                break
            done.set_result(None)
        self._release_all()
        self._writing_done = None
        self._writer = None

    def _release_all(self) -> None:
        """After a failure, wake who waits; `committed` then raises."""
        for done in (self._writing_done, self._gathered_done):
            if done is not None and not done.done():
                done.set_result(None)

    def raise_if_failed(self) -> None:
        """Raises the `OurFault` of a failed write, if there was one."""
        if self.failed.done():
            raise self.failed.result()
