"""How a lease follows from the epoch's secret: tasks, target lengths, draws and the name of the file.

This module does not know who gets a slot (`slots.grants`) or what became of it (`slots.ledger`).
"""

from farflung.slots.curriculum import tasks_of_slot
from farflung.slots.deterministic import ANYBODY
from farflung.slots.grants import Grant
from farflung.slots.permutation import slot_target_lengths
from farflung.slots.seeds import draw_seed, keyed_hash
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.pool import PoolSpec
from farflung.wire.submission import UploadTicket


def write_lease(
    rules: PoolSpec,
    pool_digest: str,
    secret: bytes,
    request: LeaseRequest,
    grant: Grant,
    *,
    now_ms: int,
    plan: CurriculumPlan | None = None,
    first_slot: int = 0,
) -> Lease:
    """The lease for a grant. The node learns tasks and draws from it, and chooses neither.

    Args:
        pool_digest: of `rules`; an argument because it is the same for every lease and not free.
        request: whose version and policy digest the lease is for.
        plan: the one that this version was published with, None if it had none.
        first_slot: of the slot's epoch, from which tasks are counted: no task twice before all once, in each epoch.
    """
    environment, place = rules.environment, grant.slot - first_slot
    drawn_by, draw = (ANYBODY, 0) if rules.is_deterministic else (request.node, grant.attempt)
    return Lease(
        pool_digest=pool_digest,
        lease_id=lease_id(grant.slot, grant.attempt),
        slot=grant.slot,
        attempt=grant.attempt,
        node=request.node,
        policy_version=request.policy_version,
        policy_digest=request.policy_digest,
        task_indices=tasks_of_slot(secret, place, rules.groups_per_slot, environment, plan),
        target_lengths=slot_target_lengths(
            secret, place, rules.groups_per_slot, rules.target_lengths_of(request.capability_class)
        ),
        draw_seed=draw_seed(secret, request.policy_digest, grant.slot, drawn_by, draw).hex(),
        capability_class=request.capability_class,
        issued_at_ms=now_ms,
        expires_at_ms=now_ms + round(rules.lease_s * 1000),
        curriculum_digest="" if plan is None else plan.digest(),
    )


def lease_id(slot: int, attempt: int) -> str:
    return f"{slot}-{attempt}"


def slot_of(lease_id: str) -> int | None:
    """The slot that a lease id names; None when it is none of ours."""
    slot, _, attempt = lease_id.partition("-")
    well_formed = slot.isascii() and slot.isdecimal() and attempt.isascii() and attempt.isdecimal()
    return int(slot) if well_formed and len(lease_id) <= 32 else None


def write_ticket(rules: PoolSpec, secret: bytes, lease: Lease) -> UploadTicket:
    """Where the file of this lease goes. Nobody else can guess the name, and asking again gives the same."""
    token = keyed_hash(secret, "farflung/upload-key/1", lease.lease_id, lease.node).hex()[:16]
    return UploadTicket(
        lease_id=lease.lease_id,
        key=f"rollouts/{lease.policy_version:06d}/{lease.lease_id}-{token}.parquet",
        max_bytes=rules.max_file_bytes,
        expires_at_ms=lease.expires_at_ms,
    )
