"""The lease of a slot in a run without a coordinator: tasks and draws follow from slot, version and run alone."""

from farflung.local.slot_book import Turn
from farflung.slots.curriculum import tasks_of_slot
from farflung.slots.deterministic import ANYBODY
from farflung.slots.leases import lease_id
from farflung.slots.permutation import slot_target_lengths
from farflung.slots.seeds import draw_seed
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.lease import ANY_CLASS, Lease
from farflung.wire.pool import PoolSpec

NODE = "local"


def write_local_lease(
    rules: PoolSpec,
    pool_digest: str,
    secret: bytes,
    turn: Turn,
    policy_digest: str,
    plan: CurriculumPlan | None = None,
) -> Lease:
    """As in a deterministic pool, whatever the mode: whoever samples a slot, and however often, draws the same."""
    environment, slot = rules.environment, turn.slot
    return Lease(
        pool_digest=pool_digest,
        lease_id=lease_id(slot, 0),
        slot=slot,
        attempt=0,
        node=NODE,
        policy_version=turn.policy_version,
        policy_digest=policy_digest,
        task_indices=tasks_of_slot(secret, slot, rules.groups_per_slot, environment, plan),
        target_lengths=slot_target_lengths(secret, slot, rules.groups_per_slot, rules.target_lengths_of(ANY_CLASS)),
        draw_seed=draw_seed(secret, policy_digest, slot, ANYBODY, 0).hex(),
        capability_class=ANY_CLASS,
        issued_at_ms=0,
        expires_at_ms=round(rules.lease_s * 1000),
        curriculum_digest="" if plan is None else plan.digest(),
    )
