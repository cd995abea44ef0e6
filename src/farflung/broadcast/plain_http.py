"""GET of a body whose size is known, over plain HTTP/1.1, read by the kernel straight into its memory.

    GET <path>                       one request at a time on a connection that stays open
    head, at most 16 KiB             Content-Length says `num_bytes` where the status is 200
    body                             recv_into, woken for `_WAKE_BYTES` at a time and not for every packet

A general client copies a body three times on its way; chunks of weights are most of what nodes receive. Nothing is
believed: no redirects, no compression, no transfer codings, no more bytes than were asked for. Not for TLS.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Mapping
from urllib.parse import urlsplit

from farflung.errors import PeerFault, Transient

BAD_ANSWER = "bad_answer"
MAX_HEAD_BYTES = 16 << 10
MAX_IDLE = 16
"""Connections to one server that are kept for later."""
_WAKE_BYTES = 512 << 10
_HEAD_END = b"\r\n\r\n"


class PlainHttp:
    """Connections of one client to any number of servers."""

    def __init__(self, headers: Mapping[str, str], *, connect_s: float, silence_s: float) -> None:
        """
        Args:
            silence_s: longest time in which less than `_WAKE_BYTES` of an answer come, or not the rest of it.
        """
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._connect_s, self._silence_s = connect_s, silence_s
        self._idle: defaultdict[str, list[socket.socket]] = defaultdict(list)

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def get(self, server: str, path: str, num_bytes: int) -> bytearray:
        """The body, of just so many bytes.

        Raises:
            Transient: out of reach, silent, or another status than 200.
            PeerFault: the answer breaks the protocol.
        """
        connection, is_used = await self._connection(server)
        try:
            try:
                body = await self._exchange(connection, server, path, num_bytes)
            except ConnectionError:
                connection.close()
                if not is_used:
                    raise
                connection, _ = await self._connection(server, is_new=True)  # the server had enough of the old one
                body = await self._exchange(connection, server, path, num_bytes)
        except (OSError, TimeoutError) as error:
            connection.close()
            raise Transient(f"{type(error).__name__}: {str(error)[:200]}") from error
        except BaseException:
            connection.close()
            raise
        if len(self._idle[server]) < MAX_IDLE:
            self._idle[server].append(connection)
        else:
            connection.close()
        return body

    async def _connection(self, server: str, *, is_new: bool = False) -> tuple[socket.socket, bool]:
        """A connection, and whether it has been used before."""
        if self._idle[server] and not is_new:
            return self._idle[server].pop(), True
        parts = urlsplit(server)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                return await _connect(loop, parts.hostname or "", parts.port or 80), False
        except (OSError, TimeoutError, ValueError) as error:
            raise Transient(f"{type(error).__name__}: {str(error)[:200]}") from error

    async def _exchange(self, connection: socket.socket, server: str, path: str, num_bytes: int) -> bytearray:
        parts = urlsplit(server)
        loop = asyncio.get_running_loop()
        request = f"GET {parts.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{self._headers}\r\n"
        _wake_at(connection, 1)
        async with asyncio.timeout(self._silence_s):
            await loop.sock_sendall(connection, request.encode("latin-1"))
        head, rest = await self._head(connection)
        _check_head(head, num_bytes)
        if len(rest) > num_bytes:
            raise PeerFault(BAD_ANSWER, f"more than {num_bytes} bytes")
        body = bytearray(num_bytes)
        body[: len(rest)] = rest
        await self._fill(connection, memoryview(body)[len(rest) :])
        return body

    async def _head(self, connection: socket.socket) -> tuple[bytes, bytes]:
        """The head, and what came of the body with it."""
        loop = asyncio.get_running_loop()
        received = b""
        while (end := received.find(_HEAD_END)) < 0:
            if len(received) >= MAX_HEAD_BYTES:
                raise PeerFault(BAD_ANSWER, f"a head of more than {MAX_HEAD_BYTES} bytes")
            async with asyncio.timeout(self._silence_s):
                piece = await loop.sock_recv(connection, MAX_HEAD_BYTES)
            if not piece:
                raise ConnectionResetError("the server closed the connection before it answered")
            received += piece
        return received[:end], received[end + len(_HEAD_END) :]

    async def _fill(self, connection: socket.socket, lacking: memoryview) -> None:
        loop = asyncio.get_running_loop()
        wake_bytes = 0
        while lacking:
            if wake_bytes != min(_WAKE_BYTES, len(lacking)):
                wake_bytes = min(_WAKE_BYTES, len(lacking))
                _wake_at(connection, wake_bytes)
            async with asyncio.timeout(self._silence_s):
                count = await loop.sock_recv_into(connection, lacking)
            if not count:
                raise Transient(f"the server closed the connection {len(lacking)} bytes before the end")
            lacking = lacking[count:]


async def _connect(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    last: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
        except OSError as error:
            connection.close()
            last = error
        except BaseException:
            connection.close()
            raise
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise last or OSError(f"{host} has no address")


def _wake_at(connection: socket.socket, num_bytes: int) -> None:
    """Where the system knows it, be woken for so many bytes, which have to come."""
    if hasattr(socket, "SO_RCVLOWAT"):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, num_bytes)


def _check_head(head: bytes, num_bytes: int) -> None:
    status_line, *lines = head.decode("latin-1").split("\r\n")
    words = status_line.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isascii() or not words[1].isdigit():
        raise PeerFault(BAD_ANSWER, f"no HTTP: {status_line[:80]!r}")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(words[1])
    if 300 <= status < 400:
        raise PeerFault(BAD_ANSWER, f"a redirect to {fields.get('location', '')[:80]!r}")
    if status != 200:
        raise Transient(f"answered {status}")
    if fields.get("content-encoding", "identity") != "identity" or "transfer-encoding" in fields:
        raise PeerFault(BAD_ANSWER, "an encoded body that nobody asked for")
    if fields.get("content-length") != str(num_bytes):
        announced = fields.get("content-length", "an unknown number of")[:20]
        raise PeerFault(BAD_ANSWER, f"{announced} bytes announced for a chunk of {num_bytes}")
