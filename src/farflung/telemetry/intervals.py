"""What a role did when, as intervals in a file of its own: the rows that a timeline is drawn from.

    {"time_s": ..., "kind": "activity", "start_s": 1785750001.9, "end_s": 1785750003.2, "node": "worker-1",
     "role": "worker", "activity": "sampling"}

Cheap and bounded: what is shorter than `min_interval_s` is joined with its neighbours under the name of the longest of
them, and `min_interval_s` doubles after every `ROWS_PER_RESOLUTION` rows. A process that changes its activity without
end so writes 4,000 rows in its first minutes and 40,000 in its first days. This module does not know what the
activities mean.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from farflung.telemetry.metrics import MetricsLog

MIN_INTERVAL_S = 0.05
ROWS_PER_RESOLUTION = 4000
LONGEST_UNWRITTEN_S = 10.0
"""A process that is killed loses at most about this much of its last interval."""


@dataclass(slots=True)
class _Interval:
    activity: str
    start_s: float
    end_s: float


class IntervalLog:
    """Takes every activity as it ends, in order and without gaps; `ActivityClock(now, on_end=log.add)` does so.

    Args:
        now: the clock of the times given to `add`.
        wall: seconds since the epoch; read once, so that a clock that is set in between moves nothing.
    """

    def __init__(
        self,
        metrics: MetricsLog,
        *,
        node: str,
        role: str,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        min_interval_s: float = MIN_INTERVAL_S,
    ) -> None:
        self._metrics = metrics
        self._names = {"node": node, "role": role}
        self._epoch_s = wall() - now()
        self._min_interval_s = min_interval_s
        self._num_rows = 0
        self._short: dict[str, float] = {}
        """Seconds by activity since `_short_start_s`, while together they are shorter than `min_interval_s`."""
        self._short_start_s = 0.0
        self._open: _Interval | None = None
        """Not yet written, because it may go on."""
        self._lock = threading.Lock()

    def add(self, activity: str, start_s: float, end_s: float) -> None:
        """`activity` lasted from `start_s` to `end_s`. Never raises for want of disk."""
        with self._lock:
            if not self._short:
                self._short_start_s = start_s
            self._short[activity] = self._short.get(activity, 0.0) + end_s - start_s
            if end_s - self._short_start_s >= self._min_interval_s:
                self._join(max(self._short, key=self._short.__getitem__), self._short_start_s, end_s)
                self._short.clear()

    def close(self) -> None:
        """Write what is still open."""
        with self._lock:
            if self._open is not None:
                self._write(self._open)
                self._open = None

    def _join(self, activity: str, start_s: float, end_s: float) -> None:
        """Lengthen the open interval, or write it and open the next."""
        if self._open is not None and self._open.activity == activity:
            self._open.end_s = end_s
        else:
            if self._open is not None:
                self._write(self._open)
            self._open = _Interval(activity, start_s, end_s)
        if end_s - self._open.start_s >= LONGEST_UNWRITTEN_S:
            self._write(self._open)
            self._open = None

    def _write(self, interval: _Interval) -> None:
        row = {"start_s": self._epoch_s + interval.start_s, "end_s": self._epoch_s + interval.end_s}
        self._metrics.write("activity", {**row, **self._names, "activity": interval.activity})
        self._num_rows += 1
        if self._num_rows % ROWS_PER_RESOLUTION == 0:
            self._min_interval_s *= 2
