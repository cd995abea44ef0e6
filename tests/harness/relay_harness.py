"""Origins and relays of one process, on loopback."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from farflung.broadcast.publish import PreparedPolicy, prepare
from farflung.identity.keys import NodeKey, key_from_bytes
from farflung.identity.signing import sign
from farflung.relay import service
from farflung.relay.config import RelayConfig
from farflung.wire.manifest import Manifest

TRAINER = key_from_bytes(b"\x07" * 32)
POOL = "ab" * 32
CHUNK_BYTES = 1000


def version(
    number: int,
    previous: Manifest | None = None,
    *,
    key: NodeKey = TRAINER,
    salt: int = 0,
    num_chunks: int = 20,
    chunk_bytes: int = CHUNK_BYTES,
) -> tuple[Manifest, dict[str, bytes]]:
    """A signed version with files of `num_chunks` chunks in all, none of which another version has."""
    weights = b"".join(bytes([number, salt, index]) + bytes(chunk_bytes - 3) for index in range(num_chunks))
    prepared: PreparedPolicy = prepare(
        {"model.safetensors": weights},
        tensors=(),
        pool_digest=POOL,
        policy_version=number,
        optimizer_step=number,
        published_at_ms=1,
        expires_at_ms=1 << 50,
        previous_digest="" if previous is None else previous.digest(),
        chunk_bytes=chunk_bytes,
    )
    return sign(prepared.manifest, key), {sha256: bytes(data) for sha256, data in prepared.chunks.items()}


@dataclass
class Origin:
    """A coordinator as far as a relay sees it; a test may change how it answers."""

    manifests: list[Manifest] = field(default_factory=list)
    chunks: dict[str, bytes] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    answer: Callable[[str], Awaitable[web.StreamResponse]] | None = None
    url: str = ""
    published: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, made: tuple[Manifest, dict[str, bytes]]) -> Manifest:
        manifest, chunks = made
        self.chunks |= chunks
        self.manifests.append(manifest)
        self.published.set()
        self.published = asyncio.Event()
        return manifest

    async def latest(self, request: web.Request) -> web.StreamResponse:
        newer_than = int(request.query["newer_than"])
        if not self.manifests or self.manifests[-1].policy_version <= newer_than:
            try:
                async with asyncio.timeout(float(request.query["wait_s"])):
                    await self.published.wait()
            except TimeoutError:
                return web.Response(status=204)
        return web.Response(body=self.manifests[-1].to_bytes())

    async def chunk(self, request: web.Request) -> web.StreamResponse:
        sha256 = request.match_info["sha256"]
        self.asked[sha256] += 1
        if self.answer is not None:
            return await self.answer(sha256)
        return web.Response(body=self.chunks[sha256])


@asynccontextmanager
async def serving(origin: Origin) -> AsyncIterator[Origin]:
    app = web.Application()
    app.router.add_get("/v1/manifests/latest", origin.latest)
    app.router.add_get("/v1/chunks/{sha256}", origin.chunk)
    async with TestServer(app) as server:
        origin.url = str(server.make_url("")).rstrip("/")
        yield origin


@asynccontextmanager
async def relaying(folder: Path, *upstream: str, **settings: object) -> AsyncIterator[str]:
    """A relay; its URL."""
    stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
    config = RelayConfig(
        upstream=upstream, port=0, folder=str(folder), poll_s=0.5, trainer=TRAINER.address,
        **{"held_s": 2.0, **settings},  # type: ignore[arg-type]
    )  # fmt: skip
    running = asyncio.create_task(service.run(config, stop=stop, on_listening=url.set_result))
    await asyncio.wait((running, url), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    try:
        yield url.result()
    finally:
        stop.set()
        await running
