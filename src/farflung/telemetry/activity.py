"""Who waits for whom: seconds busy, and seconds idle by cause."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """What a role does at one moment, and what it has done since it started."""

    current: str
    """ "sampling", "training", ..., or "waiting for <cause>"."""
    busy_s: float
    idle_s: float
    idle_by_cause_s: dict[str, float]
    """Cause, such as "lease" or "batch" -> seconds; sums to `idle_s`."""

    @property
    def idle_ratio(self) -> float:
        """Share of the time since start spent waiting for others, 0 to 1."""
        total_s = self.busy_s + self.idle_s
        return self.idle_s / total_s if total_s > 0 else 0.0


OnEnd = Callable[[str, float, float], None]
"""Takes an activity with the clock's seconds at its start and its end."""


@dataclass(frozen=True, slots=True)
class _Phase:
    text: str
    idle_cause: str | None


STARTING = _Phase("starting", None)
BETWEEN = _Phase("working", None)
"""Outside every block, before the first one and after it."""


class ActivityClock:
    """Attributes every second to one activity; what is not waiting is busy.

        with activity.waiting("lease"):
            lease = await client.lease()
        with activity.busy("sampling"):
            groups = engine.sample(lease)

    Blocks nest (the inner one counts) and belong to the role's one main flow. `read` may be called from any thread.
    """

    def __init__(self, now: Callable[[], float], *, on_end: OnEnd | None = None) -> None:
        """
        Args:
            now: monotonic clock in seconds, such as `time.monotonic`.
            on_end: told of every stretch of one activity, in order and without gaps, such as `IntervalLog.add`.
        """
        self._now = now
        self._on_end = on_end
        self._lock = threading.Lock()
        self._phases = [STARTING]
        self._since_s = now()
        self._busy_s = 0.0
        self._idle_by_cause_s: dict[str, float] = {}

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Work of our own, such as "sampling"."""
        with self._phase(_Phase(what, None)):
            yield

    @contextmanager
    def waiting(self, cause: str) -> Iterator[None]:
        """Nothing to do until somebody else delivers `cause`, such as "lease" or "first policy"."""
        with self._phase(_Phase(f"waiting for {cause}", cause)):
            yield

    def read(self) -> Activity:
        """Totals up to now, with the open activity counted in."""
        with self._lock:
            self._settle()
            return Activity(
                current=self._phases[-1].text,
                busy_s=self._busy_s,
                idle_s=sum(self._idle_by_cause_s.values()),
                idle_by_cause_s=dict(self._idle_by_cause_s),
            )

    @contextmanager
    def _phase(self, phase: _Phase) -> Iterator[None]:
        with self._lock:
            self._settle()
            self._phases[0] = BETWEEN
            self._phases.append(phase)
        try:
            yield
        finally:
            with self._lock:
                self._settle()
                self._phases.remove(phase)

    def _settle(self) -> None:
        """Book the time since the last change on the activity that was current."""
        now_s = self._now()
        since_s, self._since_s = self._since_s, now_s
        elapsed_s = now_s - since_s
        if self._on_end is not None and elapsed_s > 0:
            self._on_end(self._phases[-1].text, since_s, now_s)
        cause = self._phases[-1].idle_cause
        if cause is None:
            self._busy_s += elapsed_s
        else:
            self._idle_by_cause_s[cause] = self._idle_by_cause_s.get(cause, 0.0) + elapsed_s
