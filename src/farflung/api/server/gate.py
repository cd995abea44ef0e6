"""Who may hold a connection, and for how long without using it: in front of the HTTP server.

    connected, or answer sent --(IDLE_S)--> closed          first bytes of a request --(HEADER_S)--> closed
    answer not taken --(STALL_S)--> closed                  more connections than allowed: the longest idle is closed

A connection with a request in progress is never closed for being idle; how long a request may take is its handler's
concern (`exchange.read_body`). This module does not know requests, only when one begins and ends.
"""

import asyncio
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from farflung.api.server.limits import provider_of

logger = logging.getLogger(__name__)

IDLE_S = 60.0
"""A client of ours closes a connection that it does not use after 15 s."""
HEADER_S = 10.0
"""From the first byte of a request to the end of its headers."""
STALL_S = 30.0
"""Longest time in which nothing of an answer is taken."""
SPARE_FILES = 128
"""Descriptors that are not for connections: database, store, listener."""

MakeHandler = Callable[[], asyncio.Protocol]


class Gate:
    """The connections of one server.

    Args:
        max_connections: in all.
        max_per_provider: from one address that is not this machine.
    """

    def __init__(self, max_connections: int, max_per_provider: int) -> None:
        self._max_connections = max_connections
        self._max_per_provider = max_per_provider
        self._connections: dict[asyncio.BaseTransport, _Connection] = {}
        self._idle: dict[_Connection, None] = {}  # longest idle first
        self._per_provider: Counter[str] = Counter()
        self.num_turned_away = 0
        """Connections that were closed to keep the limits."""

    def __len__(self) -> int:
        return len(self._connections)

    def guarded(self, make_handler: MakeHandler) -> asyncio.Protocol:
        """What the event loop is to talk to instead of the handler."""
        return _Connection(self, make_handler())

    @contextmanager
    def request(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """While a request is in progress."""
        connection = self._connections.get(transport) if transport is not None else None
        if connection is None:
            yield
            return
        connection.begin()
        try:
            yield
        finally:
            connection.end()

    def opened(self, connection: "_Connection", transport: asyncio.BaseTransport) -> bool:
        """Take a connection in; False = there is no room for it."""
        provider = connection.provider
        if provider is not None and self._per_provider[provider] >= self._max_per_provider:
            self._turn_away(next((idle for idle in self._idle if idle.provider == provider), connection))
        elif len(self._connections) >= self._max_connections:
            self._turn_away(next(iter(self._idle), connection))
        if connection.is_turned_away:
            return False
        self._connections[transport] = connection
        if provider is not None:
            self._per_provider[provider] += 1
        return True

    def idles(self, connection: "_Connection", is_idle: bool) -> None:
        self._idle.pop(connection, None)
        if is_idle:
            self._idle[connection] = None

    def closed(self, connection: "_Connection", transport: asyncio.BaseTransport) -> bool:
        """Forget a connection; False = it was never taken in."""
        self._idle.pop(connection, None)
        if self._connections.pop(transport, None) is None:
            return False
        if connection.provider is not None:
            self._per_provider[connection.provider] -= 1
            if not self._per_provider[connection.provider]:
                del self._per_provider[connection.provider]
        return True

    def _turn_away(self, connection: "_Connection") -> None:
        self.num_turned_away += 1
        self._idle.pop(connection, None)
        if self.num_turned_away == 1:
            logger.warning("too many connections: from now on the longest idle make room for new ones")
        connection.turn_away()


def through(gate: Gate) -> Middleware:
    """Tells the gate when requests begin and end; the outermost middleware."""

    @web.middleware
    async def tell(request: web.Request, handler: Handler) -> web.StreamResponse:
        with gate.request(request.transport):
            return await handler(request)

    return tell


class _Connection(asyncio.Protocol):
    """Passes everything on to the HTTP handler, and watches the time."""

    def __init__(self, gate: Gate, handler: asyncio.Protocol) -> None:
        self._gate = gate
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._num_requests = 0
        self._has_begun_header = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self.provider: str | None = None
        self.is_turned_away = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.provider = provider_of(peer[0] if peer else None)
        if not self._gate.opened(self, transport):
            return
        self._handler.connection_made(transport)
        self._wait(IDLE_S)

    def data_received(self, data: bytes) -> None:
        if self.is_turned_away:
            return
        if self._num_requests == 0 and not self._has_begun_header:
            self._has_begun_header = True
            self._wait(HEADER_S)
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self.is_turned_away else self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()
        self._stall_timer = self._loop.call_later(STALL_S, self.turn_away)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._idle_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        assert self._transport is not None
        if self._gate.closed(self, self._transport):
            self._handler.connection_lost(error)

    def begin(self) -> None:
        """A request's headers are there."""
        self._num_requests += 1
        self._has_begun_header = False
        self._gate.idles(self, False)
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def end(self) -> None:
        """Its answer is made, and perhaps sent."""
        self._num_requests -= 1
        if self._num_requests == 0:
            self._wait(IDLE_S)

    def turn_away(self) -> None:
        """Close at once."""
        self.is_turned_away = True
        if self._transport is not None:
            self._transport.abort()

    def _wait(self, seconds: float) -> None:
        self._gate.idles(self, True)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self._loop.call_later(seconds, self._idled)

    def _idled(self) -> None:
        assert self._transport is not None
        if self._transport.get_write_buffer_size():  # an answer is still on its way, which is `STALL_S`'s concern
            self._wait(IDLE_S)
        else:
            self._transport.abort()


class GuardedSite(web.BaseSite):
    """A listening socket of an `AppRunner` whose connections come through a gate."""

    def __init__(
        self, runner: web.AppRunner, listener: socket.socket, gate: Gate, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(runner, ssl_context=tls)
        self._listener = listener
        self._gate = gate

    @property
    def name(self) -> str:
        return str(self._listener.getsockname())

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        assert server is not None, "set the runner up first"
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: self._gate.guarded(server), sock=self._listener, backlog=512, ssl=self._ssl_context
        )


def room_for_connections(wanted: int) -> int:
    """How many connections this process can hold, after asking the system for as many descriptors as it gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = wanted if soft == resource.RLIM_INFINITY else min(wanted, soft - SPARE_FILES)
    if allowed < wanted:
        logger.warning("this process may hold %d connections, not %d: raise its limit of open files", allowed, wanted)
    return max(allowed, 16)
