"""A call within limits of time and memory that the system itself keeps: what hangs is ended, what grows fails."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def bounded(*, max_s: float, max_bytes: int) -> Iterator[None]:
    """In the main thread.

    Args:
        max_bytes: that the process may grow by; what asks for more has a MemoryError.
    """

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"takes more than {max_s} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max_s)
    resource.setrlimit(resource.RLIMIT_AS, (num_pages * resource.getpagesize() + max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
