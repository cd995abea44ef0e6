"""Who gets which slot, and which events time brings. Answers are proposals: the ledger changes when they are applied.

A vacant slot is leased again, lowest first, to a node that has its version loaded and did not lose it before. In open
pools a node that lost it gets it if no other node is alive or nobody took it for the length of a lease. Elsewhere not:
another attempt has other draws, and a node could try until it likes them; what nobody may take any more is closed.
Otherwise a new slot of the newest version, while there is capacity.

In deterministic mode a node gets the lowest slot whatever it has loaded, and fetches the slot's version if need be;
nothing is ever abandoned.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from farflung.slots.events import LeaseExpired, SlotClosed
from farflung.slots.lifecycle import Slot
from farflung.slots.table import SlotTable
from farflung.wire.verdict import RejectReason

LEASE_EXPIRED = "lease_expired"
NODE_SILENT = "node_silent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """The slot and attempt that a lease should be written for."""

    slot: int
    attempt: int


def choose_grant(
    table: SlotTable, *, node: str, policy_version: int, alive_workers: Collection[str], now_ms: int
) -> Grant | None:
    """What this node, which holds no lease and has loaded this version, should work on; None = nothing now."""
    any_version = table.rules.is_deterministic
    for slot in table.vacant():
        fits = any_version or slot.policy_version == policy_version
        if fits and _may_take(slot, node, alive_workers, table, now_ms):
            return Grant(slot=slot.slot, attempt=slot.lease.attempt + 1)
    if (any_version or policy_version == table.newest) and table.has_capacity:
        return Grant(slot=table.next_slot, attempt=0)
    return None


def due_events(
    table: SlotTable,
    *,
    silent_nodes: Collection[str],
    loaded_versions: Mapping[str, int],
    max_judgings: int,
    now_ms: int,
) -> list[LeaseExpired | SlotClosed]:
    """What has to happen by now.

    A vacant slot of an older version ends when no worker that is alive has that version loaded, or when nobody took it
    for the length of a lease: it would hold capacity for nothing, and with enough of them no new slot could be granted.
    So does, where draws are final, one that every worker that is alive has lost.

    Args:
        silent_nodes: nodes that count as dead; their leases end.
        loaded_versions: worker that is alive -> its version.
        max_judgings: failed attempts after which a submission is set aside.
    """
    if table.rules.is_deterministic:
        return [*_ended_leases(table, silent_nodes, now_ms)]
    return [
        *_ended_leases(table, silent_nodes, now_ms),
        *_abandoned(table, loaded_versions, now_ms),
        *(
            SlotClosed(slot=slot.slot, reason=RejectReason.VALIDATOR_FAULT)
            for slot in table.waiting()
            if _num_failures(slot, table) >= max_judgings
        ),
    ]


def _num_failures(slot: Slot, table: SlotTable) -> int:
    """Attempts to judge it that came to nothing."""
    is_alone = table.rules.checks.validators_per_submission == 1
    return len(slot.failed_validators) if is_alone else slot.num_failed_panels


def _ended_leases(table: SlotTable, silent_nodes: Collection[str], now_ms: int) -> list[LeaseExpired]:
    ended: list[LeaseExpired] = []
    for slot in table.leased():
        if slot.lease.expires_at_ms <= now_ms:
            ended.append(LeaseExpired(slot=slot.slot, at_ms=now_ms, reason=LEASE_EXPIRED))
        elif slot.lease.node in silent_nodes:
            ended.append(LeaseExpired(slot=slot.slot, at_ms=now_ms, reason=NODE_SILENT))
    return ended


def _abandoned(table: SlotTable, loaded: Mapping[str, int], now_ms: int) -> list[SlotClosed]:
    versions = set(loaded.values())

    def is_old(slot: Slot) -> bool:
        return slot.policy_version < table.newest and (
            slot.policy_version not in versions or _has_waited(slot, table, now_ms)
        )

    def is_lost_by_all(slot: Slot) -> bool:
        return table.rules.are_draws_final and bool(loaded) and loaded.keys() <= set(slot.lost_by)

    return [
        SlotClosed(slot=slot.slot, reason=slot.reason)
        for slot in table.vacant()
        if is_old(slot) or is_lost_by_all(slot)
    ]


def _may_take(slot: Slot, node: str, alive_workers: Collection[str], table: SlotTable, now_ms: int) -> bool:
    if node not in slot.lost_by:
        return True
    if table.rules.are_draws_final:
        return False
    others_alive = any(worker not in slot.lost_by for worker in alive_workers)
    return not others_alive or _has_waited(slot, table, now_ms)


def _has_waited(slot: Slot, table: SlotTable, now_ms: int) -> bool:
    return now_ms - slot.vacant_since_ms >= table.rules.lease_s * 1000
