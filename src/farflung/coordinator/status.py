"""The coordinator's picture of the pool, for `GET /v1/status`."""

from farflung.coordinator.core import Core
from farflung.wire.node import PoolStatus


def pool_status(core: Core) -> PoolStatus:
    """Counts since the run began, and who is there now."""
    table, tally = core.table, core.state.ledger.tally
    return PoolStatus(
        pool=core.state.rules.name,
        policy_version=table.newest,
        nodes=core.nodes.statuses(core.now_ms()),
        slots={**{state.value: count for state, count in table.open_counts().items()}, **tally.final},
        drops=tally.drops,
        tokens_generated=tally.tokens_submitted,
        tokens_accepted=tally.tokens_accepted,
        outstanding_groups=table.outstanding_groups,
        is_finished=core.is_finished,
    )
