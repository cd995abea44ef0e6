"""A pipe that ends a role when its supervisor is gone, however it went.

The supervisor holds the only writing end and never writes. When it dies, by `kill -9` too, the kernel closes that end,
and each role reads the end of the file.
"""

import os
import signal
import threading
import time
from collections.abc import Callable

GRACE_S = 20.0
"""From the clean stop to the kill of whatever is left of a role."""


class Leash:
    """The supervisor's side; lives as long as this process."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()
        """`read_fd` is what a role inherits."""

    def close(self) -> None:
        """Let go: roles that still hold the leash stop."""
        for fd in (self.read_fd, self._write_fd):
            os.close(fd)


def hold(fd: int, *, grace_s: float = GRACE_S, on_loss: Callable[[], None] | None = None) -> threading.Thread:
    """The role's side: watch the inherited end in a thread; stop this process when the supervisor is gone.

    Args:
        fd: the reading end.
        grace_s: time for a clean stop.
        on_loss: in place of the stop, for tests.
    """
    thread = threading.Thread(target=_watch, args=(fd, on_loss or (lambda: _stop_self(grace_s))), daemon=True)
    thread.start()
    return thread


def _watch(fd: int, on_loss: Callable[[], None]) -> None:
    while os.read(fd, 1):
        pass
    on_loss()


def _stop_self(grace_s: float) -> None:
    """SIGTERM for a clean stop, SIGKILL for the whole process group when that takes too long."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
