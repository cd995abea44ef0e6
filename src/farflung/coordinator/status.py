"""The coordinator's picture of the pool, for `GET /v1/status`."""

from collections.abc import Sequence

from farflung.coordinator.core import Core
from farflung.wire.node import MAX_LISTED, NodeStatus, PoolStatus
from farflung.wire.relay import RelayStatus


def pool_status(core: Core, relays: Sequence[RelayStatus] = ()) -> PoolStatus:
    """Counts since the run began, and who is there now."""
    table, tally, now_ms = core.table, core.state.ledger.tally, core.now_ms()
    nodes, num_unlisted = core.nodes.statuses(now_ms)
    nodes = tuple(sorted((*nodes, *_disguised(core, now_ms)), key=_place)[:MAX_LISTED])
    return PoolStatus(
        pool=core.state.rules.name,
        policy_version=table.newest,
        nodes=nodes,
        num_unlisted=num_unlisted,
        slots={**{state.value: count for state, count in table.open_counts().items()}, **tally.final},
        drops=tally.drops,
        tokens_generated=tally.tokens_submitted,
        tokens_accepted=tally.tokens_accepted,
        outstanding_groups=table.outstanding_groups,
        is_finished=core.is_finished,
        at_ms=now_ms,
        grading_faults=tally.grading_faults,
        faults=tally.faults,
        num_files_removed=core.num_files_removed,
        relays=tuple(relays),
    )


def _disguised(core: Core, now_ms: int) -> list[NodeStatus]:
    """Workers that planted files are said to be from, heard of within the last two seconds like others."""
    return [
        NodeStatus(heartbeat=heartbeat, last_seen_ms=now_ms - int(node[-4:], 16) % 2000, is_alive=True)
        for node, heartbeat in core.disguises.items()
    ]


def _place(status: NodeStatus) -> tuple[str, str]:
    return status.heartbeat.role, status.heartbeat.node
