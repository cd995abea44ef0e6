"""The auditor's replay: everything that a coordinator did in its epochs, beside what it had to do.

    secret          what was revealed is what had been committed to
    lease           tasks, target lengths, draw seed and plan are those of secret, slot, node and attempt
    course          each event could follow the ones before it (`slots.ledger`): no slot leased twice at once, no node
                    with two leases, no more attempts than allowed, nothing trained on twice or without being accepted

A deviation names the event and what is wrong with it. What the auditor was not shown (an epoch that is not revealed
yet) is counted, not blamed. This module reads no files and checks no signatures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from farflung.slots import events
from farflung.slots.events import Event
from farflung.slots.grants import Grant
from farflung.slots.leases import lease_id, write_lease
from farflung.slots.ledger import Ledger
from farflung.slots.lifecycle import IllegalEvent
from farflung.slots.seeds import check_reveal
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.epoch import EpochNotice
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.pool import PoolSpec

SECRET, LEASE, COURSE = "secret", "lease", "course"


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviation:
    """Something that the coordinator had no right to do."""

    rule: str
    """`SECRET`, `LEASE` or `COURSE`."""
    where: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """What a replay found."""

    num_events: int
    num_leases_checked: int
    num_leases_sealed: int
    """Of epochs that are not revealed."""
    deviations: tuple[Deviation, ...]


def lease_problem(
    rules: PoolSpec, secret: bytes, lease: Lease, plan: CurriculumPlan | None, *, first_slot: int = 0
) -> str | None:
    """What is wrong with a lease, for anyone who knows the secret; None when it is as it must be.

    Args:
        plan: the one that the lease's version was published with, None if it had none.
        first_slot: of the slot's epoch.
    """
    request = LeaseRequest(
        node=lease.node,
        policy_version=lease.policy_version,
        policy_digest=lease.policy_digest,
        capability_class=lease.capability_class,
    )
    expected = write_lease(
        rules,
        rules.digest(),
        secret,
        request,
        Grant(slot=lease.slot, attempt=lease.attempt),
        now_ms=lease.issued_at_ms,
        plan=plan,
        first_slot=first_slot,
    )
    expected = msgspec.structs.replace(expected, signature=lease.signature)
    for name in Lease.__struct_fields__:
        claimed, derived = getattr(lease, name), getattr(expected, name)
        if claimed != derived:
            return f"{name} of lease {lease.lease_id} is {claimed!r}, secret and rules give {derived!r}"
    return None


def audit(
    rules: PoolSpec,
    notices: Sequence[EpochNotice],
    history: Iterable[tuple[int, Event]],
    plans: Mapping[str, CurriculumPlan],
    plan_of_version: Mapping[int, str],
) -> Audit:
    """Replay a pool from its first event.

    Args:
        notices: of all epochs, oldest first.
        history: (sequence, event) from the beginning, in order.
        plans: digest -> curriculum plan.
        plan_of_version: version -> digest of the plan that it was published with; absent or empty = none.
    """
    deviations = [
        Deviation(rule=SECRET, where=f"epoch {notice.number}", detail="the revealed secret is not the promised one")
        for notice in notices
        if notice.secret and not check_reveal(notice.commitment, bytes.fromhex(notice.secret))
    ]
    ledger = Ledger(rules)
    num_events = num_checked = num_sealed = 0
    for sequence, event in history:
        num_events += 1
        try:
            ledger.apply(event)
        except IllegalEvent as error:
            deviations.append(Deviation(rule=COURSE, where=f"event {sequence}", detail=str(error)))
        if not isinstance(event, events.LeaseGranted):
            continue
        lease = event.lease
        notice = _epoch_of(notices, lease.slot)
        if notice is None or not notice.secret:
            num_sealed += 1
            continue
        num_checked += 1
        digest = plan_of_version.get(lease.policy_version, "")
        problem = (
            f"plan {digest} of its version is not in the ledger"
            if digest and digest not in plans
            else lease_problem(
                rules, bytes.fromhex(notice.secret), lease, plans.get(digest), first_slot=notice.first_slot
            )
        )
        if problem is not None:
            where = f"event {sequence}, lease {lease_id(lease.slot, lease.attempt)}"
            deviations.append(Deviation(rule=LEASE, where=where, detail=problem))
    return Audit(
        num_events=num_events,
        num_leases_checked=num_checked,
        num_leases_sealed=num_sealed,
        deviations=tuple(deviations),
    )


def _epoch_of(notices: Sequence[EpochNotice], slot: int) -> EpochNotice | None:
    for notice in notices:
        if notice.first_slot <= slot and (notice.end_slot is None or slot < notice.end_slot):
            return notice
    return None
