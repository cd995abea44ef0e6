"""Asking one of several servers, over HTTP: coordinators and relays speak the same three routes.

Nothing here is believed: bodies are bounded before they are read, redirects are not followed, compression is refused,
and chunks are checked by whoever asked (`broadcast.swarm`). Connections stay open between requests.
"""

import asyncio
import ssl
from types import TracebackType
from typing import Self

import aiohttp

from farflung.broadcast.fetch import ChunkBytes
from farflung.broadcast.plain_http import BAD_ANSWER, PlainHttp
from farflung.errors import PeerFault, Transient
from farflung.wire.manifest import Manifest

CONNECT_S = 5.0
SILENCE_S = 15.0
"""Longest time without a byte of an answer that has begun or is due."""
CHUNK_S = CONNECT_S + 4 * SILENCE_S
_PIECE_BYTES = 1 << 18


class Servers:
    """One client's connections to any number of servers."""

    def __init__(self, headers: dict[str, str] | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        """
        Args:
            tls: how https servers are checked; None = as the system does it.
        """
        self._tls = tls
        self._headers = {**(headers or {}), "Accept-Encoding": "identity"}
        self._plain = PlainHttp(self._headers, connect_s=CONNECT_S, silence_s=SILENCE_S)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S),
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or True),
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._plain.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def chunk(self, server: str, sha256: str, num_bytes: int) -> ChunkBytes:
        """A chunk's bytes, unchecked but for their number.

        Raises:
            Transient: out of reach, or it has no such chunk now.
            PeerFault: the answer breaks the protocol.
        """
        path = f"/v1/chunks/{sha256}"
        if server.startswith("http://"):
            try:
                async with asyncio.timeout(CHUNK_S):
                    return await self._plain.get(server.rstrip("/"), path, num_bytes)
            except TimeoutError:
                raise Transient(f"no chunk in {CHUNK_S:g} s") from None
        status, body = await self._get(server, path, {}, num_bytes, CHUNK_S)
        if status != 200:
            raise Transient(f"answered {status}")
        if len(body) != num_bytes:
            raise PeerFault(BAD_ANSWER, f"{len(body)} bytes for a chunk of {num_bytes}")
        return body

    async def latest_manifest(self, server: str, newer_than: int, wait_s: float) -> Manifest | None:
        """The newest version above `newer_than`; None when `wait_s` passed first. Raises as `chunk`."""
        query = {"newer_than": str(newer_than), "wait_s": f"{wait_s:g}"}
        path = "/v1/manifests/latest"
        status, body = await self._get(server, path, query, Manifest.MAX_BYTES, wait_s + CONNECT_S + SILENCE_S)
        if status == 204:
            return None
        if status != 200:
            raise Transient(f"answered {status}")
        return Manifest.from_bytes(body)

    async def manifest(self, server: str, version: int) -> Manifest | None:
        """The manifest of a version; None if it is not there. Raises as `chunk`."""
        status, body = await self._get(
            server, f"/v1/manifests/{version}", {}, Manifest.MAX_BYTES, CONNECT_S + SILENCE_S
        )
        if status == 404:
            return None
        if status != 200:
            raise Transient(f"answered {status}")
        return Manifest.from_bytes(body)

    async def _get(
        self, server: str, path: str, query: dict[str, str], max_bytes: int, longest_s: float
    ) -> tuple[int, bytes]:
        assert self._session is not None, "use it as a context"
        timeout = aiohttp.ClientTimeout(total=longest_s, sock_connect=CONNECT_S, sock_read=longest_s)
        try:
            async with self._session.get(
                server.rstrip("/") + path, params=query, allow_redirects=False, timeout=timeout
            ) as response:
                if 300 <= response.status < 400:
                    raise PeerFault(BAD_ANSWER, f"a redirect to {response.headers.get('Location', '')[:80]!r}")
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise PeerFault(BAD_ANSWER, "a compressed body that nobody asked for")
                return response.status, await _read(response, max_bytes if response.status == 200 else 1 << 16)
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError, ValueError) as error:
            raise Transient(f"{type(error).__name__}: {str(error)[:200]}") from error


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The body; given up as soon as it is longer, or pauses for too long."""
    if (response.content_length or 0) > max_bytes:
        raise PeerFault(BAD_ANSWER, f"{response.content_length} bytes announced where {max_bytes} are the most")
    body = bytearray()
    pieces = response.content.iter_chunked(_PIECE_BYTES)
    while True:
        async with asyncio.timeout(SILENCE_S):
            piece = await anext(pieces, None)
        if piece is None:
            return bytes(body)
        body += piece
        if len(body) > max_bytes:
            raise PeerFault(BAD_ANSWER, f"more than {max_bytes} bytes")
