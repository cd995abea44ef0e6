"""The relay as a process: fetch from upstream, serve below, until it is stopped. Killed, it goes on with its folder."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from aiohttp import web

from farflung.api.server.gate import Gate, GuardedSite, room_for_connections
from farflung.api.server.listening import bound_socket, shown_host
from farflung.broadcast.servers import Servers
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm
from farflung.broadcast.trust import ManifestTrust
from farflung.errors import UserError
from farflung.relay.app import build_app
from farflung.relay.config import RelayConfig
from farflung.relay.mirror import Mirror
from farflung.relay.shelf import Shelf

logger = logging.getLogger(__name__)

SHUTDOWN_S = 2.0


def wall_ms() -> int:
    return int(time.time() * 1000)


async def run(
    config: RelayConfig, *, stop: asyncio.Event, on_listening: Callable[[str], None] = lambda _url: None
) -> None:
    """Relay until `stop` is set.

    Raises:
        UserError: no upstream, or address, certificate or folder cannot be used.
    """
    if not config.upstream:
        raise UserError("relay.upstream is empty: give --upstream URL, such as http://10.0.0.7:7400")
    tls = _tls(config)
    shelf = Shelf(Path(config.folder), config.max_disk_bytes)
    origin, *relays = config.upstream
    book = SourceBook(origin)
    book.offer(relays)
    gate = Gate(room_for_connections(config.max_connections), config.max_connections_per_address)
    with bound_socket(config.host, config.port, "relay.port") as listener:
        async with Servers() as servers:
            mirror = Mirror(
                servers,
                Swarm(servers.chunk, book, asyncio.get_running_loop().time),
                shelf,
                ManifestTrust(trainer=config.trainer),
                upstream=config.upstream,
                max_concurrent=config.max_concurrent,
                poll_s=config.poll_s,
                now_ms=wall_ms,
            )
            app = build_app(mirror, gate, held_s=config.held_s, max_requests_per_s=config.max_requests_per_s)
            runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=SHUTDOWN_S)
            await runner.setup()
            try:
                await GuardedSite(runner, listener, gate, tls).start()
                scheme = "https" if tls else "http"
                on_listening(f"{scheme}://{shown_host(config.host)}:{listener.getsockname()[1]}")
                await _until(stop, mirror.run())
            finally:
                await runner.cleanup()


async def _until(stop: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Run `work` until it fails or `stop` is set."""
    running, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if running.done():
        running.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _tls(config: RelayConfig) -> ssl.SSLContext | None:
    if not config.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"relay.tls_certificate {config.tls_certificate} with relay.tls_key {config.tls_key}: {error}; both must "
            "be PEM files that belong together"
        ) from error
    return context
