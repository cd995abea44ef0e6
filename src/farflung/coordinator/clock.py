"""The pool's time: milliseconds that pass as they do in reality, whatever happens to the wall clock.

    pool time = max(wall clock at the start, last time in the journal) + monotonic seconds since the start

So a wall clock that jumps (NTP, a person, a machine that slept) neither ends leases nor makes them last, and a restart
never goes back. Pool time is near wall time but is not it: what others compare it with has to come from here too.
"""

import time
from collections.abc import Callable


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class PoolClock:
    """Call it for the time in milliseconds.

    Args:
        not_before_ms: the last time that was written down; a restart goes on from there if the wall clock is behind.
        monotonic_s: seconds that never go back.
    """

    def __init__(
        self,
        not_before_ms: int,
        *,
        wall_ms: Callable[[], int] = wall_clock_ms,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._anchor_ms = max(wall_ms(), not_before_ms)
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()

    def __call__(self) -> int:
        return self._anchor_ms + round((self._monotonic_s() - self._started_s) * 1000)
