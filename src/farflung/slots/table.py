"""The slots of a pool with every view that is asked of them, kept up to date one slot at a time.

    outstanding groups = groups of slots that are open, or accepted and neither consumed nor dropped

This module does not know events: `put` files a slot as it is told (`slots.steps` decides, `slots.ledger` orders).
"""

import heapq

from msgspec.structs import replace

from farflung.slots.deterministic import version_for
from farflung.slots.lifecycle import Slot
from farflung.wire.batch import SlotOutcome
from farflung.wire.canonical import Record
from farflung.wire.pool import PoolSpec
from farflung.wire.verdict import SlotState


class TableState(Record, frozen=True, kw_only=True):
    """Everything that a table is; its views are derived from this."""

    newest: int = -1
    versions: tuple[tuple[int, str], ...] = ()
    next_slot: int = 0
    next_sequence: int = 0
    slots: tuple[Slot, ...] = ()


class SlotTable:
    """Slots by number, node, submission, state and order of finality.

    Args:
        rules: the pool's.
        state: to go on from.
    """

    def __init__(self, rules: PoolSpec, state: TableState) -> None:
        self.rules = rules
        self.newest = state.newest
        """Newest published version; -1 before the first."""
        self.versions = dict(state.versions)
        """Version -> policy digest, for those that may still be leased, fetched or judged."""
        self.next_slot = state.next_slot
        self.next_sequence = state.next_sequence
        self._slots = {slot.slot: slot for slot in state.slots}  # ascending, as they are created
        self._leases: dict[str, int] = {}  # node -> slot
        self._vacant: set[int] = set()
        self._waiting: dict[int, None] = {}  # oldest receipt first
        self._ready: set[int] = set()
        self._submissions: dict[str, int] = {}  # digest -> slot
        self._feed: dict[int, int] = {}  # sequence -> slot, ascending, without spent ones
        self._done: list[int] = []  # heap of slots that are final and not ready
        for slot in sorted(state.slots, key=_by_filing):
            self._file(slot)

    @property
    def state(self) -> TableState:
        return TableState(
            newest=self.newest,
            versions=tuple(self.versions.items()),
            next_slot=self.next_slot,
            next_sequence=self.next_sequence,
            slots=tuple(self._slots.values()),
        )

    # Questions.

    def slot(self, number: int) -> Slot | None:
        """None when it was not created yet, or was forgotten."""
        return self._slots.get(number)

    def slots(self) -> list[Slot]:
        """All that are remembered, in slot order."""
        return list(self._slots.values())

    def leased_to(self, node: str) -> Slot | None:
        """The slot of the node's one open lease."""
        return self._maybe(self._leases.get(node))

    def submission(self, digest: str) -> Slot | None:
        """The slot that this submission was made for, final or not."""
        return self._maybe(self._submissions.get(digest))

    def leased(self) -> list[Slot]:
        return [self._slots[number] for number in self._leases.values()]

    def vacant(self) -> list[Slot]:
        """In slot order."""
        return [self._slots[number] for number in sorted(self._vacant)]

    def waiting(self) -> list[Slot]:
        """Submissions without a verdict, oldest receipt first."""
        return [self._slots[number] for number in self._waiting]

    def open_slots(self) -> list[int]:
        """Slots that are not final, ascending."""
        return sorted([*self._leases.values(), *self._vacant, *self._waiting])

    def oldest_done(self) -> Slot | None:
        """The lowest slot that is final and that nobody will train on."""
        return self._slots[self._done[0]] if self._done else None

    @property
    def num_done(self) -> int:
        return len(self._done)

    @property
    def outstanding_groups(self) -> int:
        slots = len(self._leases) + len(self._vacant) + len(self._waiting) + len(self._ready)
        return slots * self.rules.groups_per_slot

    @property
    def has_capacity(self) -> bool:
        """Whether a new slot may be granted."""
        room = self.rules.max_outstanding_groups - self.outstanding_groups
        return 0 <= self.next_version <= self.newest and room >= self.rules.groups_per_slot

    def version_of(self, number: int) -> int:
        """The version that samples a slot, new or not."""
        slot = self.slot(number)
        return self.next_version if slot is None else slot.policy_version

    @property
    def next_version(self) -> int:
        """The version that samples the next new slot; in deterministic mode it may not be published yet."""
        return version_for(self.rules, self.next_slot) if self.rules.is_deterministic else self.newest

    def is_in_window(self, policy_version: int) -> bool:
        """Whether a batch on the newest version may still use rollouts of this one."""
        return self.newest - policy_version <= self.rules.max_staleness

    def open_counts(self) -> dict[SlotState, int]:
        return {
            SlotState.LEASED: len(self._leases),
            SlotState.VACANT: len(self._vacant),
            SlotState.SUBMITTED: len(self._waiting),
        }

    def outcomes(self, after: int, limit: int) -> list[SlotOutcome]:
        """Final slots with sequence above `after`, in order; spent and forgotten ones are left out."""
        first = next(iter(self._feed), self.next_sequence)
        found: list[SlotOutcome] = []
        for sequence in range(max(after + 1, first), self.next_sequence):
            if len(found) == limit:
                break
            if sequence in self._feed:
                found.append(_outcome(self._slots[self._feed[sequence]], sequence))
        return found

    def has_outcomes(self, after: int) -> bool:
        """Whether `outcomes` would find one."""
        return bool(self.outcomes(after, 1))

    # Changes.

    def put(self, slot: Slot) -> Slot:
        """File the slot as it is now; one that has just become final gets the next sequence."""
        before = self._slots.get(slot.slot)
        if before is not None and (before.state, before.is_spent) == (slot.state, slot.is_spent):
            self._slots[slot.slot] = slot  # the views hold numbers, and its place in them is the same
            return slot
        if before is not None:
            self._unfile(before)
            if before.submission is not None and slot.submission is None:
                del self._submissions[before.submission.digest()]  # refused, and its slot is vacant again
        if slot.is_final and slot.sequence is None:
            slot = replace(slot, sequence=self.next_sequence)
            self.next_sequence += 1
        self.next_slot = max(self.next_slot, slot.slot + 1)
        self._slots[slot.slot] = slot
        self._file(slot)
        return slot

    def forget_oldest_done(self) -> Slot:
        slot = self._slots.pop(heapq.heappop(self._done))
        self._feed.pop(_sequence(slot), None)
        if slot.submission is not None:
            del self._submissions[slot.submission.digest()]
        return slot

    def _file(self, slot: Slot) -> None:
        """Enter a slot into the views of its state."""
        if slot.state is SlotState.LEASED:
            self._leases[slot.lease.node] = slot.slot
        elif slot.state is SlotState.VACANT:
            self._vacant.add(slot.slot)
        elif slot.state is SlotState.SUBMITTED:
            self._waiting[slot.slot] = None
        elif slot.is_ready:
            self._ready.add(slot.slot)
        else:
            heapq.heappush(self._done, slot.slot)
        if slot.is_final and not slot.is_spent:
            self._feed[_sequence(slot)] = slot.slot
        if slot.submission is not None:
            self._submissions[slot.submission.digest()] = slot.slot

    def _unfile(self, slot: Slot) -> None:
        """The opposite of `_file`, for a slot that is about to be replaced; what is done never is."""
        if slot.state is SlotState.LEASED:
            del self._leases[slot.lease.node]
        elif slot.state is SlotState.VACANT:
            self._vacant.remove(slot.slot)
        elif slot.state is SlotState.SUBMITTED:
            del self._waiting[slot.slot]
        else:
            assert slot.is_ready, f"slot {slot.slot} is done and cannot change"
            self._ready.remove(slot.slot)
            del self._feed[_sequence(slot)]

    def _maybe(self, number: int | None) -> Slot | None:
        return None if number is None else self._slots[number]

    def views(self) -> tuple[object, ...]:
        """Every derived view in comparable form, for the check that they agree with the slots."""
        return (
            self._leases,
            self._vacant,
            list(self._waiting),
            self._ready,
            self._submissions,
            list(self._feed.items()),
            sorted(self._done),
        )


def _by_filing(slot: Slot) -> tuple[int, int]:
    """Sorts final slots by sequence and submitted ones by receipt, the orders in which they were first filed."""
    return (slot.sequence or 0, slot.receipt.sequence if slot.receipt else 0)


def _sequence(slot: Slot) -> int:
    assert slot.sequence is not None, f"slot {slot.slot} is {slot.state}, which has no sequence"
    return slot.sequence


def _outcome(slot: Slot, sequence: int) -> SlotOutcome:
    return SlotOutcome(
        sequence=sequence,
        slot=slot.slot,
        state=slot.state,
        policy_version=slot.policy_version,
        submission=slot.submission,
        verdict=slot.verdict,
        task_indices=slot.lease.task_indices,
    )
