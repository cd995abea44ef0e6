"""The in-memory twin of `state.event_log`: the same rules, and nothing survives the process."""

from collections.abc import Iterator, Sequence

from farflung.errors import OurFault
from farflung.state.event_log import SNAPSHOT, Entry, check_next


class MemoryEventLog:
    """Implements `EventLog`.

    Args:
        capacity: entries that it holds before it is "full"; None = no bound.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self.entries: list[Entry] = []
        self.num_writes = 0
        """Transactions so far."""
        self._capacity = capacity

    def write(self, entries: Sequence[Entry]) -> None:
        if self._capacity is not None and len(self.entries) + len(entries) > self._capacity:
            raise OurFault("event log in memory cannot be written: it is full")
        self.num_writes += 1
        self.entries.extend(entries)

    def replay(self) -> Iterator[Entry]:
        expected: int | None = None
        for entry in self.read(self._newest_snapshot(), len(self.entries)):
            check_next(entry.sequence, entry.kind, expected)
            expected = entry.sequence + 1
            yield entry

    def read(self, first: int, limit: int) -> list[Entry]:
        return [entry for entry in self.entries if entry.sequence >= first][:limit]

    def forget(self, before: int) -> None:
        kept_from = min(before, self._newest_snapshot())
        self.entries = [entry for entry in self.entries if entry.sequence >= kept_from]

    def close(self) -> None:
        pass

    def _newest_snapshot(self) -> int:
        return max((entry.sequence for entry in self.entries if entry.kind == SNAPSHOT), default=0)
