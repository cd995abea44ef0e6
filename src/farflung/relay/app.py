"""A relay's HTTP interface: three of the coordinator's routes, so that a client need not know which it talks to."""

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from farflung.api import routes
from farflung.api.errors import RefusalReason, Refused
from farflung.api.server import exchange
from farflung.api.server.gate import Gate, through
from farflung.api.server.limits import RateLimit
from farflung.relay.mirror import Mirror

MAX_VERSION = 2**53


def build_app(mirror: Mirror, gate: Gate, *, held_s: float, max_requests_per_s: float) -> web.Application:
    """Behind the gate, the error boundary and the limit of calls."""
    app = web.Application(middlewares=[through(gate), exchange.boundary, _limited(max_requests_per_s)])
    relay = _Relay(mirror, held_s)
    app.router.add_get(routes.LATEST_MANIFEST.path, relay.latest)
    app.router.add_get(routes.MANIFEST.path.replace("{version}", r"{version:\d{1,15}}"), relay.manifest)
    app.router.add_get(routes.GET_CHUNK.path.replace("{sha256}", "{sha256:[0-9a-f]{64}}"), relay.chunk)
    return app


def _limited(per_s: float) -> Middleware:
    rate = RateLimit(per_s)

    @web.middleware
    async def limited(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not rate.admits(exchange.provider_of(request), asyncio.get_running_loop().time()):
            return exchange.too_many_requests(per_s)
        return await handler(request)

    return limited


class _Relay:
    def __init__(self, mirror: Mirror, held_s: float) -> None:
        self._mirror = mirror
        self._held_s = held_s

    async def latest(self, request: web.Request) -> web.StreamResponse:
        newer_than = exchange.whole_number(request, "newer_than", -1, least=-1, most=MAX_VERSION)
        return exchange.record_answer(await self._mirror.newer_manifest(newer_than, exchange.wait_s(request)))

    async def manifest(self, request: web.Request) -> web.StreamResponse:
        version = int(request.match_info["version"])
        found = self._mirror.manifest(version)
        if found is None:
            raise Refused(RefusalReason.NOT_FOUND, f"version {version} is not here, or not any more")
        return exchange.record_answer(found)

    async def chunk(self, request: web.Request) -> web.StreamResponse:
        """From disk to socket by the kernel."""
        sha256 = request.match_info["sha256"]
        path = await self._mirror.chunk(sha256, self._held_s)
        if path is None:
            raise Refused(RefusalReason.NOT_FOUND, f"chunk {sha256} is of no version here")
        return web.FileResponse(path, headers={"Content-Type": routes.BYTES_TYPE})
