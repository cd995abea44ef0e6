"""Which slots are sampled next, by which version, and how far ahead of the trainer.

    open      a number that was never given, or was given back       -> granted, lowest first
    out       granted, or admitted and not yet trained on            at most max_outstanding_groups at once
    settled   trained on, dropped or closed                          final

Slots are trained on in order, a batch a version. So when a slot is granted with the newest version while fewer than
`max_staleness + 1` batches are out, at most `max_staleness` versions are made before the one that it is trained on:
`local_rules` lets no more be out.

Pure: no clock, no processes. Does not know what a slot holds.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from farflung.slots.deterministic import slots_per_batch, version_for
from farflung.wire.pool import PoolSpec


def local_rules(rules: PoolSpec) -> PoolSpec:
    """The pool's rules with nothing out that could only be stale: for batches of a fixed number of groups."""
    ahead = (rules.max_staleness + 1) * slots_per_batch(rules) * rules.groups_per_slot
    return replace(rules, max_outstanding_groups=min(rules.max_outstanding_groups, ahead))


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A slot to sample now."""

    slot: int
    policy_version: int


class SlotBook:
    """
    Args:
        has_seen: whether a slot is settled already, from before the book was opened.
    """

    def __init__(self, rules: PoolSpec, has_seen: Callable[[int], bool]) -> None:
        self._rules = rules
        self._has_seen = has_seen
        self._next = 0
        self._given_back: list[int] = []
        self._out: set[int] = set()
        self._losses: dict[int, int] = {}
        self._max_out = max(slots_per_batch(rules), rules.max_outstanding_groups // rules.groups_per_slot)

    @property
    def num_out(self) -> int:
        return len(self._out)

    def grant(self, newest_version: int) -> Turn | None:
        """The next slot; None while the samplers are as far ahead as they may be."""
        if newest_version < 0:
            return None
        if self._given_back:
            slot = heapq.heappop(self._given_back)
            return Turn(slot=slot, policy_version=self._version(slot, newest_version))
        while self._has_seen(self._next):
            self._next += 1
        slot = self._next
        if self.num_out >= self._max_out or self._version(slot, newest_version) > newest_version:
            return None
        self._next += 1
        self._out.add(slot)
        return Turn(slot=slot, policy_version=self._version(slot, newest_version))

    def give_back(self, slot: int) -> int:
        """Its sampler is gone; returns how often that has happened to this slot."""
        heapq.heappush(self._given_back, slot)
        self._losses[slot] = self._losses.get(slot, 0) + 1
        return self._losses[slot]

    def settle(self, slots: Iterable[int]) -> None:
        """Trained on, dropped or closed."""
        for slot in slots:
            self._out.discard(slot)
            self._losses.pop(slot, None)

    def needed_versions(self, newest_version: int) -> range:
        """Versions that slots still to be granted are sampled by, up to the newest."""
        if not self._rules.is_deterministic:
            return range(newest_version, newest_version + 1)
        return range(max(0, newest_version - self._rules.max_staleness), newest_version + 1)

    def _version(self, slot: int, newest_version: int) -> int:
        return version_for(self._rules, slot) if self._rules.is_deterministic else newest_version
