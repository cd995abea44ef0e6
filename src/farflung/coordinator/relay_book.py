"""The relays of a pool: who is there, who is handed out, who stands below whom, and why somebody is not listed.

    offered --(looked at: it serves this pool)--> listed --(silent, unreachable, behind, lied)--> not listed

A lie that the coordinator saw itself ends a relay until the coordinator starts again; what nodes say of a relay is
counted, has it looked at, and keeps it from those who said it. Soft state: after a restart relays come back by
themselves. Time is an argument. Does not know HTTP, or what is done to look at a relay.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from farflung.coordinator.relay_addresses import Address, address_of, may_be_told, number_of
from farflung.sharding.spread import choose
from farflung.sharding.tree import ORIGIN, RelayTree, assign, num_slots
from farflung.sharding.tree import RelayOffer as Place
from farflung.wire.relay import MAX_REASON_CHARS, MAX_SOURCES, RelayOffer, RelayStatus

MAX_RELAYS = 1024
"""Remembered at once; who comes when there is no room is refused."""
MAX_PER_HOST = 16
"""Of these from one address that is not this machine; who lied there keeps its place."""
MAX_LISTED_RELAYS = 64
"""In one status."""
MAX_ACCUSERS = 64
"""Of one relay that are remembered."""
BEHIND_VERSIONS = 2
"""A relay that is more publications behind, and gets no further, is no help."""
LOOK_MS = 60_000
"""Between two looks at a relay that was found in order; others are looked at more often."""
LOOK_AGAIN_MS = 5_000
LIED = "lied"
NEW = "it was not looked at yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class BookRules:
    """How wide the tree is and how patient the book."""

    origin_slots: int
    fan_out: int
    slot_bytes_per_s: float
    """What a child or reader needs."""
    per_reader: int
    silent_after_ms: int


@dataclass(slots=True)
class _Entry:
    url: str
    relay: str
    upload_bytes_per_s: int
    policy_version: int
    last_seen_ms: int
    is_fixed: bool = False
    """Listed by the operator."""
    problem: str = NEW
    looked_ms: int | None = None
    is_looked_at: bool = False
    is_accused: bool = False
    """Since the last look."""
    is_new: bool = True
    """It had no version when it was looked at."""
    advanced_ms: int = 0
    """When its newest version last rose."""
    lie: str = ""
    accusers: set[str] = field(default_factory=set)
    host: Address | None = field(init=False)

    def __post_init__(self) -> None:
        self.host = number_of(self.url)


class RelayBook:
    """Bounded; nothing in it is kept on disk."""

    def __init__(self, rules: BookRules, fixed: Iterable[str] = ()) -> None:
        """
        Args:
            fixed: URLs that the operator lists, whether they register themselves or not.
        """
        self._rules = rules
        self._entries = {url: _Entry(url, "", 0, -1, last_seen_ms=0, is_fixed=True) for url in fixed}  # by URL
        self._tree = RelayTree({})
        self._num_children: Counter[str] = Counter()

    def offered(self, offer: RelayOffer, now_ms: int) -> str:
        """A relay's sign of life; why it is not taken, or empty. Its address was judged before."""
        entry = self._entries.get(offer.url)
        if entry is not None and entry.relay not in ("", offer.relay) and not self._is_silent(entry, now_ms):
            return f"{offer.url} is registered by another relay"
        if entry is None:
            if len(self._entries) >= MAX_RELAYS:
                return f"{MAX_RELAYS} relays are registered, there is no room for more"
            if self._num_of_host(offer.url) >= MAX_PER_HOST:
                return f"{MAX_PER_HOST} relays of this host are registered, there is no room for more"
            entry = self._entries[offer.url] = _Entry(offer.url, offer.relay, 0, -1, now_ms)
            entry.advanced_ms = now_ms
        if offer.policy_version > entry.policy_version:
            entry.advanced_ms = now_ms
        entry.relay, entry.last_seen_ms = offer.relay, now_ms
        entry.upload_bytes_per_s, entry.policy_version = offer.upload_bytes_per_s, offer.policy_version
        return ""

    def accuse(self, accuser: str, urls: Sequence[str]) -> None:
        """A node says that these sent it other bytes than a chunk's."""
        for url in urls:
            entry = self._entries.get(url)
            if entry is not None and accuser not in entry.accusers and len(entry.accusers) < MAX_ACCUSERS:
                entry.accusers.add(accuser)
                entry.is_accused = True

    def due(self, now_ms: int) -> list[tuple[str, bool]]:
        """Relays to look at now, each with whether somebody accuses it; they count as being looked at from here on."""
        found = []
        for entry in self._entries.values():
            if entry.is_looked_at or entry.lie or self._is_silent(entry, now_ms):
                continue
            pause_ms = LOOK_AGAIN_MS if entry.problem or entry.is_accused or entry.is_new else LOOK_MS
            if entry.looked_ms is None or now_ms - entry.looked_ms >= pause_ms:
                entry.is_looked_at, entry.is_accused = True, False
                found.append((entry.url, bool(entry.accusers)))
        return found

    def looked(self, url: str, problem: str, now_ms: int, *, lie: str = "", version: int | None = None) -> None:
        """What a look at a relay has shown.

        Args:
            problem: empty = it serves this pool.
            lie: bytes or manifests that are not the trainer's; for good.
            version: newest that it has; None = none yet, or it did not tell.
        """
        entry = self._entries.get(url)
        if entry is None:
            return
        entry.is_looked_at, entry.looked_ms, entry.problem = False, now_ms, problem[:MAX_REASON_CHARS]
        entry.is_new = version is None
        entry.lie = entry.lie or lie
        if version is not None:
            entry.policy_version = max(entry.policy_version, version)
        if entry.is_fixed and not entry.relay and not problem:
            entry.last_seen_ms = now_ms

    def settle(self, newest: int, now_ms: int) -> None:
        """Forget the silent and give every listed relay a parent; those whose parent stays keep it."""
        for url, entry in list(self._entries.items()):
            if not entry.is_fixed and not entry.lie and self._is_silent(entry, now_ms, patience=10):
                del self._entries[url]
        listed = [entry for entry in self._listed(newest, now_ms) if entry.relay]
        rules = self._rules
        self._tree = assign(
            [Place(relay_id=entry.url, upload_bytes_per_s=entry.upload_bytes_per_s) for entry in listed],
            origin_slots=rules.origin_slots,
            slot_rate=rules.slot_bytes_per_s,
            max_fan_out=rules.fan_out,
            before=self._tree,
        )
        self._num_children = Counter(self._tree.parents.values())

    def above(self, url: str, caller: str | None) -> tuple[str, ...]:
        """Whom a relay is to fetch from: its parent, the parent's parent, ... without the origin; nearest first."""
        if url not in self._tree.parents:
            return ()
        reader = address_of(caller)
        chain = [server for server in self._tree.sources(url) if server in self._entries]
        return tuple(server for server in chain[:MAX_SOURCES] if may_be_told(self._entries[server].host, reader))

    def for_reader(self, node: str, caller: str | None, newest: int, now_ms: int) -> tuple[str, ...]:
        """Whom a worker or validator is to fetch from; those that it accuses are left out."""
        weights: dict[str, float] = {}
        reader = address_of(caller)
        for entry in self._listed(newest, now_ms):
            if node in entry.accusers or not may_be_told(entry.host, reader):
                continue
            place = Place(relay_id=entry.url, upload_bytes_per_s=entry.upload_bytes_per_s)
            slots = num_slots(place, self._rules.slot_bytes_per_s, self._rules.fan_out)
            weights[entry.url] = max(0.5, slots - self._num_children[entry.url])  # one that is full or slow is a spare
        return tuple(choose(node, weights, self._rules.per_reader))

    def problem(self, url: str, newest: int, now_ms: int) -> str:
        """Why a relay is not handed out; empty = it is."""
        entry = self._entries.get(url)
        return "it is not registered" if entry is None else self._problem(entry, newest, now_ms)

    def statuses(self, newest: int, now_ms: int) -> tuple[RelayStatus, ...]:
        """The listed ones first."""
        found = [
            RelayStatus(
                url=entry.url,
                relay=entry.relay,
                parent=self._tree.parents.get(entry.url, ORIGIN),
                policy_version=entry.policy_version,
                last_seen_ms=entry.last_seen_ms,
                problem=self._problem(entry, newest, now_ms),
                num_accusers=len(entry.accusers),
            )
            for entry in self._entries.values()
        ]
        return tuple(sorted(found, key=lambda status: (bool(status.problem), status.url))[:MAX_LISTED_RELAYS])

    def _listed(self, newest: int, now_ms: int) -> list[_Entry]:
        return [entry for entry in self._entries.values() if not self._problem(entry, newest, now_ms)]

    def _problem(self, entry: _Entry, newest: int, now_ms: int) -> str:
        if entry.lie:
            return f"{LIED}: {entry.lie}"[:MAX_REASON_CHARS]
        if self._is_silent(entry, now_ms):
            return "silent"
        if entry.problem:
            return entry.problem
        is_stuck = bool(entry.relay) and now_ms - entry.advanced_ms > 2 * self._rules.silent_after_ms
        if is_stuck and entry.policy_version < newest - BEHIND_VERSIONS:
            return f"behind: it has version {entry.policy_version}"
        return ""

    def _num_of_host(self, url: str) -> int:
        host = number_of(url)
        if host is None or host.is_loopback:
            return 0
        return sum(entry.host == host for entry in self._entries.values())

    def _is_silent(self, entry: _Entry, now_ms: int, patience: int = 1) -> bool:
        """One that the operator lists and that never registered is not expected to say anything."""
        return bool(entry.relay) and now_ms - entry.last_seen_ms > patience * self._rules.silent_after_ms
