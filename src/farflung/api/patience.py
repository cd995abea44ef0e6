"""How long a role puts up with a coordinator that is away, and how it stops.

A role's loop makes its calls through one `Patience`: passing trouble is retried with back-off until the coordinator has
been away for `longest_s`, and a stop interrupts any wait at once.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from farflung.api.retry import delay_s
from farflung.errors import FarflungError, Transient

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 2.0


class Stopped(FarflungError):
    """The role was asked to stop while it waited; not an error."""


class Patience:
    """Shared by all calls of one role."""

    def __init__(self, stop: asyncio.Event, longest_s: float) -> None:
        self._stop = stop
        self._longest_s = longest_s

    async def __call__(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make an idempotent call until it succeeds.

        Raises:
            Stopped: the role is asked to stop.
            Transient: away for longer than the patience; every other error passes at once.
        """
        now_s = asyncio.get_running_loop().time
        deadline_s: float | None = None  # counted from the first failure: the call itself may be a long poll
        attempt = 0
        while True:
            try:
                return await self.unless_stopped(call())
            except Transient as error:
                pause_s = delay_s(attempt, first_delay_s=FIRST_DELAY_S, max_delay_s=MAX_DELAY_S, draw=random.random())
                deadline_s = now_s() + self._longest_s if deadline_s is None else deadline_s
                if now_s() + pause_s > deadline_s:
                    raise Transient(f"{error} (gave up after {self._longest_s:g} s)") from error
                logger.info("%s; again in %.1f s", error, pause_s)
            attempt += 1
            await self.sleep(pause_s)

    async def unless_stopped(self, work: Awaitable[Result]) -> Result:
        """Await `work`, but give it up with `Stopped` when the role is asked to stop."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return await task
            raise Stopped("asked to stop")
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def sleep(self, seconds: float) -> None:
        """Sleep; raises `Stopped` as soon as the role is asked to stop."""
        await self.unless_stopped(asyncio.sleep(seconds))
