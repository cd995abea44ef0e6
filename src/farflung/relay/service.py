"""The relay as a process: fetch from upstream, serve below, until it is stopped. Killed, it goes on with its folder."""

import asyncio
import logging
import os
import platform
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from farflung.api.client import CoordinatorClient
from farflung.api.patience import Patience, Stopped
from farflung.api.server.gate import Gate, GuardedSite, room_for_connections
from farflung.api.server.listening import bound_socket, shown_host
from farflung.api.tls import server_context
from farflung.broadcast.servers import Servers
from farflung.broadcast.shelf import Shelf
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm
from farflung.broadcast.trust import ManifestTrust
from farflung.errors import UserError
from farflung.identity.keys import key_of
from farflung.relay.app import build_app
from farflung.relay.config import RelayConfig
from farflung.relay.membership import Membership
from farflung.relay.mirror import Mirror
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.wire.relay import Sources

logger = logging.getLogger(__name__)

SHUTDOWN_S = 2.0


def wall_ms() -> int:
    return int(time.time() * 1000)


async def run(
    config: RelayConfig,
    *,
    stop: asyncio.Event,
    tls: ssl.SSLContext | None = None,
    on_listening: Callable[[str], None] = lambda _url: None,
) -> None:
    """Relay until `stop` is set, or until the run of the pool is over.

    Args:
        tls: how https servers are checked; None = as the system does it.

    Raises:
        UserError: nobody to fetch from, or address, certificate or folder cannot be used.
        Transient: no coordinator answered for `config.unreachable_s`.
    """
    if not config.upstream and not config.coordinator:
        raise UserError("nobody to fetch from: give --coordinator URL or --upstream URL, such as http://10.0.0.7:7400")
    own_tls = server_context(config.tls_certificate, config.tls_key, "relay")
    shelf = Shelf(Path(config.folder), config.max_disk_bytes)
    gate = Gate(room_for_connections(config.max_connections), config.max_connections_per_address)
    with bound_socket(config.host, config.port, "relay.port") as listener, suppress(Stopped):
        scheme = "https" if own_tls else "http"
        own_url = f"{scheme}://{shown_host(config.host)}:{listener.getsockname()[1]}"
        async with Servers(tls=tls) as servers, _coordinator(config, stop, tls) as coordinator:
            trust = ManifestTrust(trainer=config.trainer)
            if coordinator is not None:
                trust = ManifestTrust(
                    trainer=config.trainer or coordinator.pool.trainer, pool_digest=coordinator.pool.digest()
                )
            mirror = _mirror(config, servers, shelf, trust)
            app = build_app(mirror, gate, held_s=config.held_s, max_requests_per_s=config.max_requests_per_s)
            runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=SHUTDOWN_S)
            await runner.setup()
            try:
                await GuardedSite(runner, listener, gate, own_tls).start()
                on_listening(own_url)
                if coordinator is None:
                    mirror.follow(config.upstream[0], config.upstream[1:])
                    await _until(stop, mirror.run())
                else:
                    membership = _membership(config, coordinator.client, config.public_url or own_url, mirror)
                    await _until(stop, mirror.run(), membership.run(config.heartbeat_s))
            finally:
                await runner.cleanup()


@dataclass(frozen=True, slots=True)
class _Coordinator:
    client: CoordinatorClient
    pool: PoolSpec


@asynccontextmanager
async def _coordinator(
    config: RelayConfig, stop: asyncio.Event, tls: ssl.SSLContext | None
) -> AsyncIterator[_Coordinator | None]:
    """The pool that this relay is part of, if it is.

    Raises:
        Stopped, Transient: no coordinator answered before the relay was asked to stop, or for too long.
    """
    if not config.coordinator:
        yield None
        return
    node = config.node or f"{platform.node()}-{os.getpid()}"
    async with CoordinatorClient(config.coordinator, node=node, role=Role.RELAY, tls=tls) as client:
        pool = await Patience(stop, config.unreachable_s)(client.pool)
        if pool.trust != "open":
            client.sign_calls(key_of(config.key_file), pool.digest())
        yield _Coordinator(client, pool)


def _mirror(config: RelayConfig, servers: Servers, shelf: Shelf, trust: ManifestTrust) -> Mirror:
    book = SourceBook(config.coordinator or config.upstream[0])
    return Mirror(
        servers,
        Swarm(servers.chunk, book, asyncio.get_running_loop().time),
        shelf,
        trust,
        max_disk_bytes=config.max_disk_bytes,
        max_concurrent=config.max_concurrent,
        poll_s=config.poll_s,
        now_ms=wall_ms,
    )


def _membership(config: RelayConfig, client: CoordinatorClient, url: str, mirror: Mirror) -> Membership:
    mirror.follow(client.url, config.upstream)

    def told(sources: Sources) -> None:
        mirror.keep_from(sources.oldest_version)
        others = [server for server in sources.servers if server not in config.upstream]
        mirror.follow(client.url, (*config.upstream, *others))

    return Membership(
        client,
        url,
        upload_bytes_per_s=config.upload_bytes_per_s,
        newest_version=lambda: mirror.newest_version,
        liars=lambda: mirror.liars,
        on_sources=told,
    )


async def _until(stop: asyncio.Event, *work: Coroutine[None, None, None]) -> None:
    """Run until one of them ends or fails, or `stop` is set."""
    running, stopping = [asyncio.create_task(each) for each in work], asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((*running, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            if task.done():
                task.result()
    finally:
        for each in (*running, stopping):
            each.cancel()
        await asyncio.gather(*running, stopping, return_exceptions=True)
