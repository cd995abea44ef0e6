"""The role that leases, receipts and settles: journal -> state -> HTTP, until it is stopped.

Killed at any moment and started again, it goes on where its journal ends, and every receipt that it gave holds.
"""

import asyncio
import logging
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from aiohttp import web

from farflung.api.server.gate import Gate, GuardedSite, room_for_connections
from farflung.api.server.listening import bound_socket, shown_host
from farflung.api.tls import server_context
from farflung.coordinator.app import build_app
from farflung.coordinator.clock import PoolClock, wall_clock_ms
from farflung.coordinator.config import CoordinatorConfig
from farflung.coordinator.core import Core
from farflung.coordinator.files import Files
from farflung.coordinator.journal import JournalRecord, PoolOpened, decode, encode
from farflung.coordinator.judging import JudgingDesk
from farflung.coordinator.pool_state import PoolState, check_same_pool, restore
from farflung.coordinator.public_ledger import PublicLedger, begin_due_epoch
from farflung.coordinator.relays import RelayDesk, relay_desk
from farflung.coordinator.sweep import collect_garbage, step_due
from farflung.errors import FarflungError, Transient, UserError
from farflung.identity.keys import NodeKey
from farflung.slots.deterministic import secret_of
from farflung.slots.seeds import SECRET_BYTES
from farflung.state.event_log import EventLog, SqlEventLog
from farflung.state.group_commit import GroupCommit
from farflung.store.base import Store
from farflung.store.object_store import ObjectStore
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec

logger = logging.getLogger(__name__)

SHUTDOWN_S = 2.0
"""How long calls in progress may take when the coordinator stops."""
LONG_PAUSE_S = 2.0
"""Lateness of a sweep that counts as a pause of this process."""


async def run(
    config: CoordinatorConfig,
    pool_spec: PoolSpec,
    *,
    key: NodeKey | None = None,
    tokens: Mapping[Role, str] | None,
    stop: asyncio.Event,
    tls: ssl.SSLContext | None = None,
    on_listening: Callable[[str], None] = lambda _url: None,
    wall_ms: Callable[[], int] = wall_clock_ms,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> None:
    """Serve until `stop` is set.

    Args:
        key: signs leases and receipts; needed unless the pool is open.
        tokens: what trainer and validators have to show (`api.tokens`). None = their word is enough, which is for
            programs that are the only ones to reach the port.
        tls: how relays with https are checked; None = as the system does it.
        wall_ms: looked at once, for the time at the start (`coordinator.clock`).
        on_listening: told the URL once calls are taken.

    Raises:
        UserError: store, database, port or pool rules cannot be used as configured.
        OurFault: the journal could not be written; start again when there is room.
    """
    for name in ("store_url", "database_url"):
        if not getattr(config, name):
            raise UserError(f"coordinator.{name} is empty: say where the coordinator keeps its files and its log")
    own_tls = server_context(config.tls_certificate, config.tls_key, "coordinator")
    store = ObjectStore(config.store_url)
    with bound_socket(config.host, config.port, "coordinator.port") as listener:
        store.remove_unfinished()
        log = SqlEventLog(config.database_url)
        clock = partial(PoolClock, wall_ms=wall_ms, monotonic_s=monotonic_s)
        await serve(
            config,
            pool_spec,
            store,
            log,
            listener,
            key=key,
            tokens=tokens,
            stop=stop,
            tls=tls,
            own_tls=own_tls,
            on_listening=on_listening,
            clock=clock,
        )


async def serve(
    config: CoordinatorConfig,
    pool_spec: PoolSpec,
    store: Store,
    log: EventLog,
    listener: socket.socket,
    *,
    key: NodeKey | None = None,
    tokens: Mapping[Role, str] | None,
    stop: asyncio.Event,
    tls: ssl.SSLContext | None = None,
    own_tls: ssl.SSLContext | None = None,
    on_listening: Callable[[str], None],
    clock: Callable[[int], Callable[[], int]],
) -> None:
    """`run` on resources that are open already; closes the log.

    Args:
        own_tls: what the listener speaks; None = plain HTTP.
        clock: last time in the journal -> the pool's time from now on.
    """
    try:
        state, num_entries, next_sequence, last_ms = _replayed(log, pool_spec)
    except FarflungError:
        log.close()
        raise
    now_ms = clock(last_ms)
    commits = GroupCommit(log, next_sequence)
    try:
        if state is None:
            opened = PoolOpened(spec=pool_spec, secret=_new_secret(pool_spec), at_ms=now_ms())
            await commits.append(*encode(opened), opened.at_ms)
            state = PoolState(opened)
        core = Core(config, state, commits, Files(store), key=key, num_since_snapshot=num_entries, now_ms=now_ms)
        judging = JudgingDesk(core)
        gate = Gate(room_for_connections(config.max_connections), config.max_connections_per_address)
        async with relay_desk(core, tls) as relays:
            app = build_app(core, judging, relays, gate, tokens)
            runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=SHUTDOWN_S)
            await runner.setup()
            await GuardedSite(runner, listener, gate, own_tls).start()
            scheme = "http" if own_tls is None else "https"
            url = f"{scheme}://{shown_host(config.host)}:{listener.getsockname()[1]}"
            logger.info("pool %s: version %d, listening on %s", pool_spec.name, core.table.newest, url)
            on_listening(url)
            try:
                ledger = await PublicLedger.resume(core, commits, core.files)
                await _sweep_until(stop, core, judging, relays, commits, ledger)
            finally:
                core.switchboard.close()
                await runner.cleanup()
    finally:
        await commits.close()
    commits.raise_if_failed()
    logger.info("coordinator stops")


def _new_secret(pool_spec: PoolSpec) -> bytes:
    if pool_spec.deterministic_seed is not None:
        return secret_of(pool_spec.deterministic_seed)
    return secrets.token_bytes(SECRET_BYTES)


async def _sweep_until(
    stop: asyncio.Event,
    core: Core,
    judging: JudgingDesk,
    relays: RelayDesk,
    commits: GroupCommit,
    ledger: PublicLedger,
) -> None:
    """Do what time brings, until stopped or until the journal fails."""
    stopping = asyncio.create_task(stop.wait())
    ends = (stopping, commits.failed)
    loop = asyncio.get_running_loop()
    try:
        while True:
            started_s = loop.time()
            await asyncio.wait(ends, timeout=core.config.sweep_s, return_when=asyncio.FIRST_COMPLETED)
            if any(end.done() for end in ends):
                return
            _excuse_pause(core, loop.time() - started_s)
            step_due(core, judging)
            relays.settle()
            begin_due_epoch(core)
            try:
                await judging.ringers.plant()
                await collect_garbage(core)
                await ledger.publish()
            except Transient as error:
                logger.warning("garbage, ledger and planted files stay for now: %s", error)
    finally:
        stopping.cancel()


def _excuse_pause(core: Core, slept_s: float) -> None:
    """A machine that slept, or a process that got no time, heard nobody: that is not the nodes' silence."""
    if slept_s > core.config.sweep_s + LONG_PAUSE_S:
        logger.warning("this process stood still for %.1f s", slept_s)
        core.nodes.excuse(round(slept_s * 1000))


def _replayed(log: EventLog, pool_spec: PoolSpec) -> tuple[PoolState | None, int, int, int]:
    """State, number of entries that it was made from, sequence of the next entry, and time of the last one."""
    num_entries, next_sequence, last_ms = 0, 0, 0

    def records() -> Iterator[JournalRecord]:
        nonlocal num_entries, next_sequence, last_ms
        for entry in log.replay():
            num_entries += 1
            next_sequence = entry.sequence + 1
            last_ms = max(last_ms, entry.at_ms)
            yield decode(entry)

    state = restore(records())
    if state is not None:
        check_same_pool(state.rules, pool_spec)
        logger.info("journal replayed: %d entries, version %d", num_entries, state.ledger.table.newest)
    return state, num_entries, next_sequence, last_ms
