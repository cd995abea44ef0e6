"""Which of several servers to ask for a chunk: what each has shown of speed and truth. Pure; the caller brings time.

    weight = rate * success / (requests in flight + 1)

`rate` and `success` are means in which the last few requests count most; a server that nobody asked yet is taken for as
fast as the fastest, and tried first. A small chunk's time tells of the way and not of the rate, so it counts until
larger chunks come. A failure rests a server for a while, twice as long each time, and so does a request that a later
one to another server overtakes; then it gets one request, and several again once it has answered that. A lie (bytes
that are not the chunk) ends it for good. The origin is asked only when no relay is fit: it stays free to publish.
"""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

_MEMORY = 0.3
"""Weight of the newest request in the means."""
_UNKNOWN_RATE = 1e6
"""Bytes/s that the first of all is taken for."""
_ALIKE = 4
"""Chunks that differ in size by less than this factor tell of each other's rate."""
_FIRST_REST_S = 0.5
_LONGEST_REST_S = 60.0


@dataclass(slots=True)
class _Record:
    rate: float | None = None
    """Bytes/s of finished requests."""
    rate_bytes: int = 0
    """Of the largest chunk that it was measured with."""
    success: float = 1.0
    num_in_flight: int = 0
    num_failures: int = 0
    """In a row."""
    rests_until_s: float = -math.inf
    lie: str = ""
    """What it sent in place of a chunk; empty = it never lied."""
    num_bytes: int = 0

    def is_fit(self, now_s: float) -> bool:
        """After a failure it has to answer one request before it gets several."""
        is_on_trial = self.num_failures > 0 and self.num_in_flight > 0
        return not self.lie and self.rests_until_s <= now_s and not is_on_trial


@dataclass(slots=True)
class SourceBook:
    """What is known of the servers of one client."""

    origin: str
    _records: dict[str, _Record] = field(default_factory=dict)
    _largest_bytes: int = 0
    """Of all chunks that came."""

    def offer(self, relays: Iterable[str]) -> None:
        """The relays there are now; what is known of those that stay is kept, and lies of all are remembered."""
        wanted = {self.origin, *relays}
        for name in wanted - self._records.keys():
            self._records[name] = _Record()
        for name in self._records.keys() - wanted:
            if not self._records[name].lie:
                del self._records[name]

    def choose(self, now_s: float, without: AbstractSet[str] = frozenset()) -> str | None:
        """Whom to ask next, other than those in `without`; None if nobody is fit now."""
        fit = [name for name, record in self._records.items() if name not in without and record.is_fit(now_s)]
        relays = [name for name in fit if name != self.origin]
        return max(relays or fit, key=self._preference, default=None)

    def ready_in_s(self, now_s: float) -> float:
        """Seconds until somebody is fit; infinite if all have lied."""
        rests = [record.rests_until_s for record in self._records.values() if not record.lie]
        return max(0.0, min(rests, default=math.inf) - now_s)

    def expected_s(self, name: str, num_bytes: int, now_s: float) -> float:
        """How long a request to `name` should take: as it is likely to, or as another one could do it if that is less.

        0 for a server that is not there any more.
        """
        record = self._records.get(name)
        if record is None:
            return 0.0
        likely_s = num_bytes / self._rate(name) * max(1, record.num_in_flight)
        other = self.choose(now_s, {name})
        if other is None:
            return likely_s
        return min(likely_s, num_bytes / self._rate(other) * (self._records[other].num_in_flight + 1))

    def asked(self, name: str) -> None:
        self._records[name].num_in_flight += 1

    def left(self, name: str) -> None:
        """A request ended without telling anything: it was not needed any more."""
        if name in self._records:
            self._records[name].num_in_flight -= 1

    def answered(self, name: str, num_bytes: int, took_s: float) -> None:
        """A request brought the chunk."""
        if (record := self._records.get(name)) is None:
            return
        shared = record.num_in_flight  # it sent to as many at once, and could have sent one of them faster
        self._measured(record, num_bytes, num_bytes * shared / max(took_s, 1e-6))
        record.success += _MEMORY * (1 - record.success)
        record.num_failures = 0
        record.num_bytes += num_bytes
        record.num_in_flight -= 1

    def overtaken(self, name: str, num_bytes: int, asked_s: float, now_s: float) -> None:
        """A request had brought nothing when a later one, to another server, brought the chunk."""
        if (record := self._records.get(name)) is None:
            return
        at_most = num_bytes * record.num_in_flight / max(now_s - asked_s, 1e-6)
        if _ALIKE * num_bytes > record.rate_bytes:
            record.rate = at_most if record.rate is None else min(record.rate, at_most)
            record.rate_bytes = max(record.rate_bytes, num_bytes)
        self._rest(record, now_s)

    def failed(self, name: str, now_s: float) -> None:
        """A request brought nothing."""
        if (record := self._records.get(name)) is not None:
            self._rest(record, now_s)

    def _rest(self, record: _Record, now_s: float) -> None:
        """Requests that fail together are one failure."""
        record.success *= 1 - _MEMORY
        record.num_in_flight -= 1
        if now_s >= record.rests_until_s:
            record.rests_until_s = now_s + min(_LONGEST_REST_S, _FIRST_REST_S * 2**record.num_failures)
            record.num_failures += 1

    def lied(self, name: str, detail: str) -> None:
        """A request brought other bytes than the chunk's."""
        if (record := self._records.get(name)) is not None:
            record.lie = detail
            record.num_in_flight -= 1

    @property
    def liars(self) -> Mapping[str, str]:
        """Server -> what it sent."""
        return {name: record.lie for name, record in self._records.items() if record.lie}

    @property
    def bytes_from(self) -> Mapping[str, int]:
        """Server -> chunk bytes that came from it."""
        return {name: record.num_bytes for name, record in self._records.items()}

    def _preference(self, name: str) -> tuple[float, bool, str]:
        record = self._records[name]
        weight = self._rate(name) * record.success / (record.num_in_flight + 1)
        return weight, self._known_rate(record) is None, name

    def _measured(self, record: _Record, num_bytes: int, rate: float) -> None:
        self._largest_bytes = max(self._largest_bytes, num_bytes)
        if record.rate is None or num_bytes >= _ALIKE * record.rate_bytes:
            record.rate = rate
        elif _ALIKE * num_bytes > record.rate_bytes:
            record.rate = (1 - _MEMORY) * record.rate + _MEMORY * rate
        record.rate_bytes = max(record.rate_bytes, num_bytes)

    def _known_rate(self, record: _Record) -> float | None:
        return record.rate if _ALIKE * record.rate_bytes > self._largest_bytes else None

    def _rate(self, name: str) -> float:
        rate = self._known_rate(self._records[name])
        if rate is not None:
            return rate
        known = [rate for record in self._records.values() if (rate := self._known_rate(record)) is not None]
        return max(known, default=_UNKNOWN_RATE)
