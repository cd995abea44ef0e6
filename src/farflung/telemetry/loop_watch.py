"""Names what stands in the way when a role's event loop does not come round.

A thread asks the loop for a sign every so often. When none comes for too long, it says so with the place that the
loop's thread is at, once for each time the loop stands still, and again when it goes on.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

LONGEST_LAG_S = 2.0
"""Longer than any step of ours takes between two awaits."""
NUM_FRAMES = 4
"""Innermost frames that are told."""


@contextmanager
def loop_watch(*, longest_lag_s: float = LONGEST_LAG_S) -> Iterator[None]:
    """Watch the running loop for the block. To be entered in the loop's own thread."""
    watch = _Watch(asyncio.get_running_loop(), threading.get_ident(), longest_lag_s)
    thread = threading.Thread(target=watch.run, name="loop watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop()
        thread.join()


class _Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop, loop_thread: int, longest_lag_s: float) -> None:
        self._loop = loop
        self._loop_thread = loop_thread
        self._longest_lag_s = longest_lag_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.wait(self._longest_lag_s / 4):
            sign = threading.Event()
            asked_s = time.monotonic()
            self._loop.call_soon_threadsafe(sign.set)
            if sign.wait(self._longest_lag_s) or self._stopped.is_set():
                continue
            logger.warning("the event loop stands still, in %s", self._place())
            while not sign.wait(self._longest_lag_s / 4) and not self._stopped.is_set():
                pass
            logger.warning("the event loop stood still for %.1f s", time.monotonic() - asked_s)

    def _place(self) -> str:
        """Function, file and line of the innermost frames, outermost first."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - there is no other way to ask
        if frame is None:
            return "a thread that has ended"
        frames = traceback.extract_stack(frame)[-NUM_FRAMES:]
        return " > ".join(f"{found.name} ({found.filename}:{found.lineno})" for found in frames)
