"""What each event changes: the slots as they will be, or `IllegalEvent`. Nothing is changed here.

Rules that the table of `slots.lifecycle` cannot hold, because they look at more than one slot or at the pool's rules:
one open lease per node, new slots only for the newest version and within capacity, consecutive versions and slots,
attempts, the staleness window, and that a batch takes accepted slots once.
"""

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from farflung.slots import events
from farflung.slots import panel as panels
from farflung.slots.events import Event, PanelEvent
from farflung.slots.lifecycle import IllegalEvent, Slot, check_transition
from farflung.slots.panel import Panel
from farflung.slots.table import SlotTable
from farflung.wire.batch import BatchRecord
from farflung.wire.check_rules import CheckRules
from farflung.wire.verdict import Outcome, RejectReason, SlotState

STALE = "stale"
"""Drop reason: accepted, and then not used before its version left the window."""
LEASE_FORFEITED = "lease_forfeited"
"""Why a slot is vacant or ended; `LeaseExpired` brings its own reason."""

MAX_LOSERS = 64
"""Nodes remembered that lost a slot."""
MAX_FAILED_VALIDATORS = 64
"""Failed attempts to judge remembered of a submission; far above any `max_judgings`, reached in deterministic mode."""

STATE_AFTER = {
    Outcome.ACCEPTED: SlotState.ACCEPTED,
    Outcome.REJECTED: SlotState.REJECTED,
    Outcome.EXPIRED: SlotState.EXPIRED,
    Outcome.UNJUDGED: SlotState.SUBMITTED,
}


def changes(table: SlotTable, event: Event) -> Sequence[Slot]:
    """The slots that the event touches, in the order in which they become final.

    Raises:
        IllegalEvent: the event cannot happen now.
    """
    match event:
        case events.VersionPublished():
            return _published(table, event.policy_version)
        case events.BatchRecorded():
            return _recorded(table, event.batch)
        case events.LeaseGranted():
            return [_granted(table, event)]
        case events.LeaseExpired():
            return [_lost(table, event, event.reason)]
        case events.Forfeited():
            return [_lost(table, event, LEASE_FORFEITED)]
        case events.Submitted():
            return [_handed_in(table, event)]
        case events.VerdictRecorded():
            return [_judged(table, event)]
        case events.JudgingLapsed():
            return [_failed(_existing(table, event, event.slot), event.validator)]
        case (
            events.PanelDrawn() | events.VoteSealed() | events.VotesOpened() | events.VoteShown() | events.PanelFailed()
        ):
            return [_voted(table, event)]
        case events.FaultRecorded() | events.BondForfeited() | events.RingerPlanted() | events.RingerEnded():
            return []
        case events.SlotClosed():
            return [_closed(_existing(table, event, event.slot), event.reason)]
        case _:
            assert_never(event)


def batch_problem(table: SlotTable, batch: BatchRecord) -> str | None:
    """Why this batch cannot be recorded, in a sentence; None when it can.

    A drop of a slot that was already dropped, or that ended otherwise, is no problem: the trainer may not know yet.
    """
    taken: set[int] = set()
    for item in batch.items:
        slot = table.slot(item.slot)
        if item.slot in taken:
            return f"slot {item.slot} is listed twice"
        if slot is None or not slot.is_ready or slot.submission is None:
            return f"slot {item.slot} is {_standing(slot)}: only accepted slots can be trained on, and only once"
        if (item.submission_digest, item.file_digest) != (slot.submission.digest(), slot.submission.file_digest):
            return f"slot {item.slot} was accepted with another submission than {item.submission_digest}"
        if not set(item.groups_trained) <= set(range(table.rules.groups_per_slot)):
            return f"slot {item.slot} has {table.rules.groups_per_slot} groups, the batch lists {item.groups_trained}"
        taken.add(item.slot)
    for drop in batch.drops:
        slot = table.slot(drop.slot)
        if drop.slot in taken:
            return f"slot {drop.slot} is listed twice"
        if drop.slot >= table.next_slot or (slot is not None and not slot.is_final):
            return f"slot {drop.slot} is {_standing(slot)}: only a slot that ended can be dropped"
        taken.add(drop.slot)
    return None


def _existing(table: SlotTable, event: Event, number: int) -> Slot:
    """The slot, in a state in which the event can happen."""
    slot = table.slot(number)
    if slot is None:
        raise IllegalEvent(f"{type(event).__name__} on slot {number}, which is unknown or forgotten")
    check_transition(slot.state, type(event))
    return slot


def _published(table: SlotTable, version: int) -> list[Slot]:
    if version != table.newest + 1:
        raise IllegalEvent(f"version {version} published after {table.newest}: versions are consecutive")
    changed: list[Slot] = []
    for slot in table.slots():
        if version - slot.policy_version <= table.rules.max_staleness:
            break  # slot order is version order
        if slot.is_ready:
            changed.append(replace(slot, is_spent=True, reason=STALE))
        elif slot.state is SlotState.VACANT:
            changed.append(_closed(slot, slot.reason))
        elif slot.state is SlotState.SUBMITTED:
            changed.append(_closed(slot, RejectReason.VERSION_WINDOW))
    return changed


def _recorded(table: SlotTable, batch: BatchRecord) -> list[Slot]:
    problem = batch_problem(table, batch)
    if problem is not None:
        raise IllegalEvent(problem)
    reasons = {item.slot: "" for item in batch.items} | {drop.slot: drop.reason for drop in batch.drops}
    named = [(table.slot(number), reason) for number, reason in reasons.items()]
    return [replace(slot, is_spent=True, reason=reason) for slot, reason in named if slot is not None and slot.is_ready]


def _granted(table: SlotTable, event: events.LeaseGranted) -> Slot:
    lease = event.lease
    holding = table.leased_to(lease.node)
    if holding is not None:
        raise IllegalEvent(f"{lease.node} already holds slot {holding.slot}: one open lease per node")
    if table.versions.get(lease.policy_version) != lease.policy_digest:
        raise IllegalEvent(f"lease of version {lease.policy_version} with unknown digest {lease.policy_digest}")
    slot = table.slot(lease.slot)
    if slot is not None:
        check_transition(slot.state, type(event))
        if lease.attempt != slot.lease.attempt + 1 or lease.policy_version != slot.policy_version:
            raise IllegalEvent(f"slot {slot.slot}: attempt {lease.attempt} of version {lease.policy_version}")
        if table.rules.are_draws_final and lease.node in slot.lost_by:
            raise IllegalEvent(f"slot {slot.slot}: {lease.node} lost it before, and would get other draws")
        return replace(slot, state=SlotState.LEASED, lease=lease)
    if (lease.slot, lease.attempt, lease.policy_version) != (table.next_slot, 0, table.next_version):
        raise IllegalEvent(f"new slot {lease.slot}: attempt {lease.attempt} of version {lease.policy_version}")
    if not table.has_capacity:
        raise IllegalEvent(f"new slot {lease.slot} with {table.outstanding_groups} groups outstanding")
    return Slot(slot=lease.slot, state=SlotState.LEASED, lease=lease)


def _lost(table: SlotTable, event: events.LeaseExpired | events.Forfeited, reason: str) -> Slot:
    """The lease ended without work; the slot is vacant, or over when no attempt or no version is left."""
    slot = _existing(table, event, event.slot)
    vacant = replace(
        slot,
        state=SlotState.VACANT,
        lost_by=_with_loser(slot),
        was_forfeited=isinstance(event, events.Forfeited),
        vacant_since_ms=event.at_ms,
        reason=reason,
    )
    if table.rules.is_deterministic:
        return vacant
    has_attempts = slot.lease.attempt + 1 < table.rules.max_attempts
    return vacant if has_attempts and table.is_in_window(slot.policy_version) else _closed(vacant, reason)


def _with_loser(slot: Slot) -> tuple[str, ...]:
    """The newest last, each node once: in deterministic mode there may be any number of attempts."""
    others = tuple(node for node in slot.lost_by if node != slot.lease.node)
    return (*others, slot.lease.node)[-MAX_LOSERS:]


def _handed_in(table: SlotTable, event: events.Submitted) -> Slot:
    slot = _existing(table, event, event.submission.slot)
    if event.submission.lease_id != slot.lease.lease_id:
        raise IllegalEvent(f"slot {slot.slot}: submission of lease {event.submission.lease_id}")
    submitted = replace(slot, state=SlotState.SUBMITTED, submission=event.submission, receipt=event.receipt)
    if table.is_in_window(slot.policy_version):
        return submitted
    return _closed(submitted, RejectReason.VERSION_WINDOW)


def _judged(table: SlotTable, event: events.VerdictRecorded) -> Slot:
    slot, verdict = _existing(table, event, event.slot), event.verdict
    if slot.submission is None or verdict.submission_digest != slot.submission.digest():
        raise IllegalEvent(f"slot {slot.slot}: verdict on submission {verdict.submission_digest}")
    if table.rules.checks.validators_per_submission > 1:
        decided = None if slot.panel is None else panels.decision(slot.panel, table.rules.checks.quorum)
        if decided != verdict:
            raise IllegalEvent(f"slot {slot.slot}: this is not what a quorum of its validators agrees on")
        slot = replace(slot, panel=None)
    is_sampled_again = table.rules.is_deterministic and verdict.reason not in (None, RejectReason.VALIDATOR_FAULT)
    if verdict.outcome is Outcome.UNJUDGED and not is_sampled_again:
        return _failed(slot, verdict.validator)
    if is_sampled_again:
        return replace(
            slot,
            state=SlotState.VACANT,
            lost_by=_with_loser(slot),
            vacant_since_ms=verdict.judged_at_ms,
            submission=None,
            receipt=None,
            failed_validators=(),
            reason=verdict.reason or "",
        )
    return replace(slot, state=STATE_AFTER[verdict.outcome], verdict=verdict, reason=verdict.reason or "")


def _voted(table: SlotTable, event: PanelEvent) -> Slot:
    """What several validators do, one after another."""
    slot = _existing(table, event, event.slot)
    if isinstance(event, events.PanelDrawn):
        return replace(slot, panel=_drawn(slot, event, table.rules.checks))
    if slot.panel is None:
        raise IllegalEvent(f"{type(event).__name__} on slot {slot.slot}, for which no validators were drawn")
    match event:
        case events.VoteSealed(commitment=commitment):
            return replace(slot, panel=panels.committed(slot.panel, commitment))
        case events.VotesOpened(reveal_by_ms=reveal_by_ms):
            return replace(slot, panel=panels.opened(slot.panel, reveal_by_ms))
        case events.VoteShown(verdict=verdict, salt=salt):
            return replace(slot, panel=panels.revealed(slot.panel, verdict, salt))
        case events.PanelFailed():
            if panels.decision(slot.panel, table.rules.checks.quorum) is not None:
                raise IllegalEvent(f"slot {slot.slot}: its validators agree")
            tried = (*slot.failed_validators, *slot.panel.members)
            return replace(
                slot,
                panel=None,
                num_failed_panels=slot.num_failed_panels + 1,
                failed_validators=tried[-MAX_FAILED_VALIDATORS:],
            )
        case _:
            assert_never(event)


def _drawn(slot: Slot, event: events.PanelDrawn, rules: CheckRules) -> Panel:
    """Whether the draw is right only those can tell who know the secret (`slots.panel_audit`)."""
    size = min(rules.validators_per_submission, len(event.candidates))
    if slot.panel is not None or event.round_number != slot.num_failed_panels:
        raise IllegalEvent(f"slot {slot.slot}: round {event.round_number} is drawn while another one runs")
    if rules.validators_per_submission == 1 or len(event.members) != size or size < rules.quorum:
        raise IllegalEvent(f"slot {slot.slot}: {len(event.members)} of {len(event.candidates)} validators drawn")
    if slot.lease.node in event.members or not set(event.members) <= set(event.candidates):
        raise IllegalEvent(f"slot {slot.slot}: {event.members} were drawn, who may not judge it")
    assert slot.submission is not None, "it is submitted"
    return Panel(
        submission_digest=slot.submission.digest(),
        round_number=event.round_number,
        members=event.members,
        commit_by_ms=event.commit_by_ms,
    )


def _failed(slot: Slot, validator: str) -> Slot:
    return replace(slot, failed_validators=(*slot.failed_validators, validator)[-MAX_FAILED_VALIDATORS:])


def _closed(slot: Slot, reason: str) -> Slot:
    """A vacant or submitted slot that ends without a verdict."""
    state = SlotState.FORFEITED if slot.submission is None and slot.was_forfeited else SlotState.EXPIRED
    return replace(slot, state=state, reason=reason, panel=None)


def _standing(slot: Slot | None) -> str:
    if slot is None:
        return "unknown or forgotten"
    return f"{slot.state}{' and already used or dropped' if slot.is_spent else ''}"
