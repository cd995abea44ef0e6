"""Asynchronous code of others, called from ours and waited for, up to a limit of time.

One event loop in a thread of its own, kept from call to call since clients and pools of the library belong to it. A
call that is still busy at its limit is cancelled; where plain code hangs, which cannot be cancelled, the thread is left
behind and the next call gets a new one. This module does not know what it runs.
"""

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_CANCEL_S = 1.0
"""For a cancelled call to end before its thread is given up."""


class TookTooLong(Exception):
    """The limit passed."""


class Caller:
    """Not for several threads at once."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises.

        Raises:
            TookTooLong: it did not end within the limit.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result(self._limit_s)
        except concurrent.futures.TimeoutError:
            if future.done():  # the work's own error
                raise
            future.cancel()
            self._give_up_if_stuck()
            raise TookTooLong(f"not done after {self._limit_s:g} s") from None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Threads do not follow into a forked process, so that it begins with a loop of its own."""
        if self._loop is None or self._process != os.getpid():
            self._loop, self._process = asyncio.new_event_loop(), os.getpid()
            weakref.finalize(self, _stop, self._loop, self._process)
            threading.Thread(target=_run, args=(self._loop,), name="verifiers", daemon=True).start()
        return self._loop

    def _give_up_if_stuck(self) -> None:
        """A loop that still answers is kept."""
        answered = threading.Event()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(answered.set)
        if not answered.wait(_CANCEL_S):
            _stop(self._loop, self._process)  # should it ever come back
            self._loop = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, process: int) -> None:
    """Nothing for a loop that is closed, or that another process runs."""
    if process == os.getpid() and not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
