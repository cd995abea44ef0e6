"""The ledger of slots: events in, new state and instructions out.

    a new slot is granted only while   outstanding groups + groups_per_slot <= max_outstanding_groups

That one rule is the backpressure: whoever is slow, the queue between sampling and training is bounded, and with it the
staleness. With `max_staleness` 0 and room for one batch it is the synchronous mode: after the slots of a batch, no slot
is granted until the batch is published.

    charges: LeaseGranted of a new slot        releases: a final state other than accepted, BatchRecorded, and
                                               VersionPublished, which drops what it makes stale

The ledger is synchronous and total: it knows no clock, randomness, socket or file; `apply` takes an event whole, or
raises `IllegalEvent` and changes nothing; the same events make the same ledger. Who should get which slot, and which
events time brings, is decided beside it (`slots.grants`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from farflung.slots import events
from farflung.slots.events import Event
from farflung.slots.lifecycle import IllegalEvent, Slot, check_transition
from farflung.slots.standing import Standings, StandingsState
from farflung.slots.steps import changes
from farflung.slots.table import SlotTable, TableState
from farflung.slots.tally import NOT_JUDGED, WITHOUT_GRADIENT, Tally
from farflung.wire.canonical import Record
from farflung.wire.panel import FaultKind
from farflung.wire.pool import PoolSpec
from farflung.wire.verdict import GRADING_FAULT, RejectReason, SlotState

MAX_FAULT_NAME_CHARS = 64
"""Of a kind of grading fault; longer ones are not counted, since a status has to stay readable."""
MAX_DONE_SLOTS = 2_000
"""Ended slots that are remembered by default, so that late repeats of a call are recognised."""
MIN_VERSIONS_KEPT = 2
"""The newest version and the one before stay available whatever the window: somebody may be half-way through one."""


@dataclass(frozen=True, slots=True)
class CapacityFreed:
    """A lease that was not possible may be now."""


@dataclass(frozen=True, slots=True)
class JudgingNeeded:
    """A submission waits for a validator."""


@dataclass(frozen=True, slots=True)
class OutcomeReady:
    """The feed of outcomes has a new entry."""


@dataclass(frozen=True, slots=True)
class VersionRetired:
    """Out of the window and worked on by nobody: what it is made of may go."""

    policy_version: int


@dataclass(frozen=True, slots=True, eq=False)
class SlotForgotten:
    """Nobody will ask for this slot again: its files may go."""

    slot: Slot


Instruction = CapacityFreed | JudgingNeeded | OutcomeReady | VersionRetired | SlotForgotten


class LedgerState(Record, frozen=True, kw_only=True):
    """Everything that a ledger is, for a snapshot."""

    table: TableState = TableState()
    tally: Tally = Tally()
    standings: StandingsState = StandingsState()


class Ledger:
    """The slots of one pool. Questions go to `table`, events to `apply`.

    Args:
        rules: the pool's.
        state: to go on from.
        max_done_slots: ended slots that are remembered; a bound on memory, without effect on what may happen next.
    """

    def __init__(
        self, rules: PoolSpec, state: LedgerState | None = None, *, max_done_slots: int = MAX_DONE_SLOTS
    ) -> None:
        state = state or LedgerState()
        self.rules = rules
        self._max_done_slots = max_done_slots
        self.table = SlotTable(rules, state.table)
        self.tally = state.tally
        self.standings = Standings(state.standings)

    @property
    def state(self) -> LedgerState:
        return LedgerState(table=self.table.state, tally=self.tally, standings=self.standings.state)

    def apply(self, event: Event) -> list[Instruction]:
        """Take one event.

        Raises:
            IllegalEvent: it cannot happen now; nothing was changed.
        """
        changed = changes(self.table, event)
        self._check_fault(event)
        if isinstance(event, events.Submitted):
            before_it = self.standings.of(event.submission.node).num_accepted
            changed = [replace(slot, num_accepted_before=before_it) for slot in changed]
        befores = [self.table.slot(slot.slot) for slot in changed]
        for before, after in zip(befores, changed, strict=True):
            check_transition(before.state if before else None, type(event), after.state)
        if isinstance(event, events.VersionPublished):
            self.table.newest = event.policy_version
            self.table.versions[event.policy_version] = event.policy_digest
        outstanding_before = self.table.outstanding_groups
        for before, after in zip(befores, changed, strict=True):
            self.table.put(after)
            self._count(before, after)
            self._note_standing(before, after)
        if isinstance(event, events.FaultRecorded):
            self.tally = self.tally.with_fault(event.fault.kind)
        if isinstance(event, events.BondForfeited):
            self.tally = self.tally.with_fault(event.forfeit.fault.kind)
            self.standings.lost_bonds[event.forfeit.fault.node] = event.forfeit.fault.digest()
        if isinstance(event, events.VerdictRecorded):
            self._count_grading_faults(event)
        if isinstance(event, events.BatchRecorded):
            unused = sum(self.rules.groups_per_slot - len(item.groups_trained) for item in event.batch.items)
            self.tally = self.tally.with_drop(WITHOUT_GRADIENT, unused)
        has_room = self.table.outstanding_groups < outstanding_before or isinstance(event, events.VersionPublished)
        return [*_instructions(changed, has_room=has_room), *self._forget(), *self._retire()]

    def _count(self, before: Slot | None, after: Slot) -> None:
        """Enter what happened to one slot into the tally."""
        num_groups = self.rules.groups_per_slot
        if before is not None and before.is_final:
            if after.reason:  # an accepted slot that was spent: consumed without a reason, dropped with one
                self.tally = self.tally.with_drop(after.reason, num_groups)
            return
        if after.submission is not None and (before is None or before.submission is None):
            self.tally = self.tally.with_tokens(submitted=after.submission.num_tokens)
        if not after.is_final:
            return
        self.tally = self.tally.with_final(after.state)
        if after.state is not SlotState.ACCEPTED:
            self.tally = self.tally.with_drop(after.reason, num_groups)
        elif after.submission is not None:
            self.tally = self.tally.with_tokens(accepted=after.submission.num_tokens)

    def _check_fault(self, event: Event) -> None:
        """Raises `IllegalEvent` for what cannot be recorded against a node."""
        match event:
            case events.BondForfeited(forfeit=forfeit) if forfeit.fault.node in self.standings.lost_bonds:
                raise IllegalEvent(f"{forfeit.fault.node} has lost its bond already")
            case events.FaultRecorded(fault=fault) if fault.kind is FaultKind.TOO_MANY_FORFEITS:
                if not self.standings.of(fault.node).is_over_budget(self.rules.checks):
                    raise IllegalEvent(f"{fault.node} is within its budget of forfeits")
            case _:
                pass

    def _note_standing(self, before: Slot | None, after: Slot) -> None:
        """Enter what happened to one slot into what is known of its node."""
        node = after.lease.node
        if after.state is SlotState.LEASED:
            self.standings.leased(node)
        elif before is not None and before.state is SlotState.LEASED and after.submission is None:
            self.standings.lost(node)
        elif after.state is SlotState.ACCEPTED and not after.is_spent:
            self.standings.accepted(node)

    def _count_grading_faults(self, event: events.VerdictRecorded) -> None:
        """Enter what a validator says that it could not grade, or could not judge at all."""
        verdict, size = event.verdict, self.rules.rollouts_per_slot
        faults = {
            name.removeprefix(GRADING_FAULT): min(round(count), size)
            for name, count in verdict.measured.items()
            if name.startswith(GRADING_FAULT) and count >= 1
        }
        if verdict.reason is RejectReason.VALIDATOR_FAULT:
            faults = {NOT_JUDGED: size}
        for name, count in faults.items():
            if name.isprintable() and len(name) <= MAX_FAULT_NAME_CHARS:
                self.tally = self.tally.with_grading_fault(f"{self.rules.environment.name}: {name}", count)

    def _forget(self) -> list[Instruction]:
        """Ended slots go once their version left the window, or when there are too many; lowest first."""
        forgotten: list[Instruction] = []
        while (oldest := self.table.oldest_done()) is not None:
            if self.table.is_in_window(oldest.policy_version) and self.table.num_done <= self._max_done_slots:
                break
            forgotten.append(SlotForgotten(self.table.forget_oldest_done()))
        return forgotten

    def _retire(self) -> list[Instruction]:
        in_use = {slot.policy_version for slot in self.table.leased()}
        num_kept = max(self.rules.max_staleness + 1, MIN_VERSIONS_KEPT)
        gone = [
            version
            for version in self.table.versions
            if self.table.newest - version >= num_kept and version not in in_use
        ]
        for version in gone:
            del self.table.versions[version]
        return [VersionRetired(version) for version in gone]

    def validate(self) -> None:
        """Assert what always holds (DESIGN section 11): for tests and simulation, after every event."""
        table, rules = self.table, self.rules
        assert table.views() == SlotTable(rules, table.state).views(), "a view disagrees with the slots"
        assert table.outstanding_groups <= rules.max_outstanding_groups, "more groups outstanding than allowed"
        ended = sum(self.tally.final.values())
        assert ended + len(table.open_slots()) == table.next_slot, "a slot was lost, or ended twice"
        assert table.next_sequence == ended, "the feed has a gap"
        assert table.num_done <= self._max_done_slots, "ended slots pile up"
        assert len(table.versions) <= rules.max_staleness + 2 + len(table.leased()), "versions pile up"
        slots = table.slots()
        versions = [slot.policy_version for slot in slots]
        assert versions == sorted(versions), "slot order is version order"
        if not rules.is_deterministic:
            assert all(slot.lease.attempt < rules.max_attempts for slot in slots), "too many attempts"
        for slot in slots:
            _validate_slot(slot, table)


def _instructions(changed: Sequence[Slot], *, has_room: bool) -> list[Instruction]:
    states = {slot.state for slot in changed if not slot.is_spent}
    instructions: list[Instruction] = []
    if has_room or SlotState.VACANT in states:
        instructions.append(CapacityFreed())
    if SlotState.SUBMITTED in states:
        instructions.append(JudgingNeeded())
    if any(state.is_final for state in states):
        instructions.append(OutcomeReady())
    return instructions


def _validate_slot(slot: Slot, table: SlotTable) -> None:
    assert slot.policy_version <= table.newest, f"slot {slot.slot} has a version of the future"
    assert (slot.sequence is not None) == slot.is_final, f"slot {slot.slot}: in the feed if and only if final"
    assert (slot.submission is None) == (slot.receipt is None), f"slot {slot.slot}: a receipt for each submission"
    assert not slot.is_spent or slot.state is SlotState.ACCEPTED, f"slot {slot.slot} was not accepted, but used"
    if slot.state in (SlotState.ACCEPTED, SlotState.REJECTED):
        assert slot.verdict is not None, f"slot {slot.slot} is {slot.state} without a verdict"
    if slot.submission is not None:
        assert slot.submission.lease_id == slot.lease.lease_id, f"slot {slot.slot}: submitted under another lease"
    if not slot.is_final and slot.state is not SlotState.LEASED:
        assert table.is_in_window(slot.policy_version), f"slot {slot.slot} waits out of the window"
    if slot.is_ready:
        assert table.is_in_window(slot.policy_version), f"slot {slot.slot} is stale, but not dropped"
