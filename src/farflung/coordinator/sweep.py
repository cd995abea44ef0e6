"""What time brings: leases that end, validators that fall silent, files that nobody needs."""

import logging

from farflung.coordinator.core import Core
from farflung.coordinator.judging import JudgingDesk
from farflung.slots.grants import due_events
from farflung.wire.node import Role

logger = logging.getLogger(__name__)


def step_due(core: Core, judging: JudgingDesk) -> None:
    """Take the events that are due now."""
    now_ms = core.now_ms()
    core.nodes.forget_dead(now_ms)
    judging.take_back_overdue()
    leased_nodes = [slot.lease.node for slot in core.table.leased()]
    for event in due_events(
        core.table,
        silent_nodes=core.nodes.silent(Role.WORKER, leased_nodes, now_ms),
        loaded_versions=core.nodes.alive_workers(now_ms),
        max_judgings=core.config.max_judgings,
        now_ms=now_ms,
    ):
        core.step(event)


async def collect_garbage(core: Core) -> None:
    """Delete what no slot or fetchable version needs any more. What made it garbage is committed first.

    Raises:
        Transient: the store is away; what was not deleted is tried again.
    """
    await core.committed()
    while core.garbage:
        await core.files.delete(core.garbage[0])
        core.garbage.popleft()  # only this function takes from the left
    if core.has_unused_chunks:
        core.has_unused_chunks = False
        async with core.files.versions:
            await core.files.collect_chunks(core.state.chunks_in_use(), core.table.newest)
    if core.has_old_files and core.config.keep_versions is not None:
        core.has_old_files = False
        num_removed = await core.files.collect_old(core.files_in_use(), core.table.newest, core.config.keep_versions)
        core.num_files_removed += num_removed
        if num_removed:
            logger.info("%d old rollout files and bundles of evidence removed", num_removed)
