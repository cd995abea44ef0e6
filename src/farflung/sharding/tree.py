"""Who fetches from whom: relays as a tree under the origin, wide where links are fast, stable as relays come and go.

    origin -> relays of level 1 -> relays of level 2 -> ... ; each feeds at most as many as its slots

A relay's slots follow from its upload rate: one for each `slot_rate` that it can send. Places are given in the order of
upload rates, so that fast relays stand near the root and depth is least (a chunk waits once per level). A relay whose
parent left moves under the shallowest free place; nobody else moves. Which parent a relay should ask is advice: every
chunk is checked against the signed manifest, so a wrong tree costs time, never truth.
"""

import heapq
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

ORIGIN = ""
"""Parent of the first level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOffer:
    """What a relay can give."""

    relay_id: str
    upload_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class RelayTree:
    """A parent for each relay."""

    parents: Mapping[str, str]
    """Relay -> its parent, `ORIGIN` at the root."""

    def depth(self, relay_id: str) -> int:
        """Hops from the origin; 1 for its children."""
        hops, parent = 1, self.parents[relay_id]
        while parent != ORIGIN:
            hops, parent = hops + 1, self.parents[parent]
        return hops

    @property
    def max_depth(self) -> int:
        return max(map(self.depth, self.parents), default=0)

    def sources(self, relay_id: str) -> list[str]:
        """Where to ask, nearest first: its parent, the parent's parent, ..., the origin."""
        chain = [self.parents[relay_id]]
        while chain[-1] != ORIGIN:
            chain.append(self.parents[chain[-1]])
        return chain


def num_slots(offer: RelayOffer, slot_rate: float, max_fan_out: int) -> int:
    """How many a relay can feed at `slot_rate` bytes/s each; 0 makes it a leaf."""
    return max(0, min(max_fan_out, int(offer.upload_bytes_per_s // slot_rate)))


def assign(
    offers: Sequence[RelayOffer],
    *,
    origin_slots: int,
    slot_rate: float,
    max_fan_out: int,
    before: RelayTree | None = None,
) -> RelayTree:
    """A parent for every relay.

    Args:
        offers: relays that are there now, in any order.
        origin_slots: how many the origin feeds, at least 1.
        slot_rate: bytes/s that a child needs.
        max_fan_out: most children of one relay.
        before: the tree until now; whoever's parent is still there and has the slot keeps it.

    Raises:
        ValueError: no slots at the origin, or a relay is offered twice.
    """
    by_id = {offer.relay_id: offer for offer in offers}
    if origin_slots < 1 or len(by_id) != len(offers) or ORIGIN in by_id:
        raise ValueError(f"{origin_slots} slots at the origin, {len(offers)} offers of {len(by_id)} relays")
    free = {offer.relay_id: num_slots(offer, slot_rate, max_fan_out) for offer in offers} | {ORIGIN: origin_slots}
    parents = _kept(by_id.keys(), before, free)
    children: dict[str, list[str]] = {}
    for relay, parent in parents.items():
        children.setdefault(parent, []).append(relay)
    places: list[tuple[int, str]] = []
    _open(ORIGIN, 0, children, free, places)
    for relay in sorted(by_id.keys() - parents.keys(), key=lambda relay: (-by_id[relay].upload_bytes_per_s, relay)):
        depth, parent = places[0] if places else (0, ORIGIN)  # nobody has a slot left: the origin has to bear it
        parents[relay] = parent
        free[parent] -= 1
        if places and not free[parent]:
            heapq.heappop(places)
        _open(relay, depth + 1, children, free, places)
    return RelayTree(parents)


def _kept(present: AbstractSet[str], before: RelayTree | None, free: dict[str, int]) -> dict[str, str]:
    """Edges that stay, whose slots are taken from `free`; a relay that moves takes what hangs below it along."""
    parents: dict[str, str] = {}
    if before is None:
        return parents
    for relay in sorted(before.parents.keys() & present, key=lambda relay: (before.depth(relay), relay)):
        parent = before.parents[relay]
        if (parent == ORIGIN or parent in present) and free[parent]:
            free[parent] -= 1
            parents[relay] = parent
    return parents


def _open(
    top: str, depth: int, children: Mapping[str, list[str]], free: Mapping[str, int], places: list[tuple[int, str]]
) -> None:
    """Offer the free slots of a relay that now hangs at `depth`, and of all below it."""
    level = [top]
    while level:
        for relay in level:
            if free[relay] > 0:
                heapq.heappush(places, (depth, relay))
        level = [child for relay in level for child in children.get(relay, ())]
        depth += 1
