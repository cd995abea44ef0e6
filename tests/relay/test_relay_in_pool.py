"""Relays of a running pool: late ones, late workers behind them, liars among them, and what their disks hold."""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from safetensors.numpy import save

from certificates import make_certificate
from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.tls import client_context
from farflung.broadcast.fetch import ChunkBytes, ChunkCache, PolicyFetcher
from farflung.broadcast.follow import PolicyFollower
from farflung.broadcast.pool_sources import PoolSources
from farflung.broadcast.publish import PatchOffer, prepare
from farflung.broadcast.servers import Servers
from farflung.errors import Transient, UserError
from farflung.identity.signing import sign
from farflung.relay import service
from farflung.relay.config import RelayConfig
from farflung.sharding.patch_build import build_patch
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.wire.relay import RelayOffer, RelayStatus
from running_pool import TRAINER, coordinator
from tiny_pool import pool_spec

WEIGHTS = "model.safetensors"
SNAPSHOT_EVERY = 4


@dataclass
class Pool:
    """A coordinator with a trainer that changes a few numbers, and whoever a test brings."""

    url: str
    spec: PoolSpec
    folder: Path
    stack: AsyncExitStack
    tls: ssl.SSLContext | None = None
    dice: Any = field(default_factory=lambda: np.random.default_rng(0))
    values: Any = field(default_factory=lambda: np.zeros((40, 50), np.float16))
    files: list[bytes] = field(default_factory=list)
    manifests: list[Manifest] = field(default_factory=list)
    ends: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)

    async def client(self, role: Role, node: str) -> CoordinatorClient:
        return await self.stack.enter_async_context(CoordinatorClient(self.url, node=node, role=role, tls=self.tls))

    async def publish(self, count: int = 1) -> Manifest:
        trainer = await self.client(Role.TRAINER, "trainer")
        for _ in range(count):
            version = len(self.files)
            self.values[self.dice.integers(0, 40), :5] += 1
            self.files.append(save({"a": self.values}))
            patch = None if not version else build_patch(self.files[-2], self.files[-1])
            made = prepare(
                {WEIGHTS: self.files[-1], "config.json": b"{}"}, tensors=(), pool_digest=self.spec.digest(),
                policy_version=version, optimizer_step=version, published_at_ms=0, expires_at_ms=1 << 50,
                previous_digest=self.manifests[-1].digest() if version else "", chunk_bytes=512,
                patch=None if patch is None else PatchOffer(
                    file=WEIGHTS, base_sha256=sha256_hex(self.files[-2]), data=patch,
                    is_alone=version % SNAPSHOT_EVERY != 0,
                ),
            )  # fmt: skip
            for sha256, data in made.chunks.items():
                await trainer.put_chunk(sha256, bytes(data))
            self.manifests.append(sign(made.manifest, TRAINER))
            await trainer.publish(Publication(manifest=self.manifests[-1]))
        return self.manifests[-1]

    async def relay(self, name: str, **settings: Any) -> str:
        """One that is handed out; its URL."""
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        values = {"folder": str(self.folder / name), "held_s": 2.0, "heartbeat_s": 0.05, "poll_s": 0.5}
        config = RelayConfig(coordinator=self.url, node=name, port=0, **(values | settings))
        running = asyncio.create_task(service.run(config, stop=stop, tls=self.tls, on_listening=listening.set_result))

        async def end() -> None:
            stop.set()
            await running

        self.stack.push_async_callback(end)
        await asyncio.wait((running, listening), return_when=asyncio.FIRST_COMPLETED)
        url: str = listening.result()
        self.ends[url] = end
        await self.until(url, lambda status: not status.problem)
        return url

    async def stop(self, url: str) -> None:
        """End a relay, and have the coordinator notice."""
        await self.ends[url]()
        await self.until(url, lambda status: status.problem == "silent")

    async def until(self, url: str, is_it: Any) -> RelayStatus:
        client = await self.client(Role.WORKER, "looking")
        async with asyncio.timeout(10):
            while True:
                found = [relay for relay in (await client.status()).relays if relay.url == url]
                if found and is_it(found[0]):
                    return found[0]
                await asyncio.sleep(0.02)

    async def whole(self, url: str) -> None:
        """Wait until the relay has all that anybody may be leased."""
        worker = await self.client(Role.WORKER, "looking")
        async with Servers(tls=self.tls) as servers, asyncio.timeout(10):
            for manifest in self.manifests:
                try:
                    kept = await worker.manifest(manifest.policy_version)
                except Refused:
                    continue
                while await servers.manifest(url, kept.policy_version) != kept:  # noqa: ASYNC110 (another's)
                    await asyncio.sleep(0.02)


@dataclass
class Reader:
    """A worker as far as weights go."""

    pool: Pool
    node: str
    asked: Counter[str] = field(default_factory=Counter)
    """Chunks that came from the coordinator."""

    async def begin(self) -> "Reader":
        self.client = await self.pool.client(Role.WORKER, self.node)
        servers = await self.pool.stack.enter_async_context(Servers(tls=self.pool.tls))
        self.sources = PoolSources(self.client.url, self._ask, self.client.relays, servers.chunk, time.monotonic)
        fetcher = PolicyFetcher(self.sources.get_chunk, ChunkCache(1 << 20))
        self.follower = PolicyFollower(fetcher, self._old_manifest, weights_name=WEIGHTS)
        return self

    async def _old_manifest(self, version: int) -> Manifest | None:
        try:
            return await self.client.manifest(version)
        except Refused:
            return None

    async def _ask(self, sha256: str, num_bytes: int) -> ChunkBytes:
        self.asked[sha256] += 1
        return await self.client.get_chunk(sha256, num_bytes)

    async def follow(self, version: int) -> None:
        """The weights of the version are the trainer's, bit for bit."""
        fetched = await self.follower.fetch(self.pool.manifests[version])
        assert fetched.weights is not None
        assert fetched.weights.data == self.pool.files[version]


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    spec = pool_spec()
    async with (
        coordinator(tmp_path, spec, private_relays=True, relay_fan_out=1, silent_after_s=1.0) as url,
        AsyncExitStack() as stack,
    ):
        yield Pool(url, spec, tmp_path, stack)


async def test_a_late_worker_behind_a_late_relay_gets_snapshot_and_patches_without_the_coordinator(pool: Pool) -> None:
    await pool.publish(7)
    url = await pool.relay("r1")
    await pool.whole(url)
    reader = await Reader(pool, "late").begin()
    await reader.follow(6)
    assert not reader.asked
    await pool.publish(3)
    await pool.until(url, lambda status: status.policy_version == 9)
    await reader.follow(9)
    assert not reader.asked, "several versions behind it went on by patches of the relay"


async def test_a_version_runs_down_the_tree_and_the_tree_closes_when_the_first_relay_goes(pool: Pool) -> None:
    await pool.publish()
    first = await pool.relay("r1")
    second = await pool.relay("r2")
    status = await pool.until(second, lambda status: status.parent == first)
    assert status.problem == ""
    await pool.publish()
    await pool.until(second, lambda status: status.policy_version == 1)
    await pool.stop(first)
    await pool.publish()
    await pool.until(second, lambda status: status.policy_version == 2)
    reader = await Reader(pool, "w").begin()
    await reader.follow(2)
    assert not reader.asked


async def test_one_of_two_relays_flips_a_bit_and_the_weights_are_right_and_it_is_named(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    await pool.publish()
    honest = await pool.relay("r1")
    lies: list[str] = []

    async def chunk(request: web.Request) -> web.StreamResponse:
        async with Servers() as servers:
            sha256 = request.match_info["sha256"]
            sizes = {c.sha256: c.num_bytes for m in pool.manifests for f in m.promised_files for c in f.chunks}
            data = bytearray(await servers.chunk(honest, sha256, sizes[sha256]))
            if len(data) > 2:  # the small one is what the coordinator looks at
                lies.append(sha256)
                data[0] ^= 1
            return web.Response(body=bytes(data))

    async def latest(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=pool.manifests[-1].to_bytes())

    app = web.Application()
    app.router.add_get("/v1/manifests/latest", latest)
    app.router.add_get("/v1/chunks/{sha256}", chunk)
    liar = str((await pool.stack.enter_async_context(TestServer(app))).make_url("")).rstrip("/")
    mallory = await pool.client(Role.RELAY, "mallory")
    await mallory.offer_relay(RelayOffer(relay="mallory", url=liar, upload_bytes_per_s=100_000_000, policy_version=0))
    await pool.until(liar, lambda status: not status.problem)
    readers = [await Reader(pool, f"w{number}").begin() for number in range(3)]
    await asyncio.gather(*(reader.follow(0) for reader in readers))
    assert lies
    assert f"{liar} sent" in caplog.text
    for reader in readers:
        await reader.sources.get_chunk(pool.manifests[0].files[0].chunks[0].sha256, 2)
    assert (await pool.until(liar, lambda status: status.num_accusers > 0)).url == liar


async def test_versions_that_nobody_can_be_leased_make_room_on_a_relays_disk(pool: Pool) -> None:
    url = await pool.relay("r1", max_disk_bytes=1 << 20)
    await pool.publish(3 * SNAPSHOT_EVERY + 2)
    await pool.until(url, lambda status: status.policy_version == 13)
    await pool.whole(url)
    async with Servers() as servers, asyncio.timeout(5):
        while await servers.manifest(url, 11) is not None:  # noqa: ASYNC110 (another's)
            await asyncio.sleep(0.02)
        assert await servers.manifest(url, 12) == pool.manifests[12], "the oldest in use is made from this snapshot"
    reader = await Reader(pool, "w").begin()
    await reader.follow(13)
    assert not reader.asked


async def test_all_of_it_works_over_tls_by_files(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    tls, spec = client_context(certificate.certificate), pool_spec()
    files = {"tls_certificate": certificate.certificate, "tls_key": certificate.key}
    async with (
        coordinator(tmp_path, spec, private_relays=True, tls=tls, **files) as url,
        AsyncExitStack() as stack,
    ):
        pool = Pool(url, spec, tmp_path, stack, tls)
        assert url.startswith("https://")
        await pool.publish(2)
        relay = await pool.relay("r1", **files)
        assert relay.startswith("https://")
        await pool.whole(relay)
        reader = await Reader(pool, "w").begin()
        await reader.follow(1)
        assert not reader.asked


async def test_a_relay_ends_with_the_run(pool: Pool, tmp_path: Path) -> None:
    await pool.publish()
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    config = RelayConfig(coordinator=pool.url, node="r", port=0, folder=str(tmp_path / "r"), heartbeat_s=0.05)
    running = asyncio.create_task(service.run(config, stop=stop, on_listening=listening.set_result))
    url = await listening
    await pool.until(url, lambda status: status.policy_version == 0)
    await (await pool.client(Role.TRAINER, "trainer")).finish()
    async with asyncio.timeout(5):
        await running


async def test_without_a_coordinator_a_relay_gives_up_at_the_start_and_says_why(tmp_path: Path) -> None:
    config = RelayConfig(coordinator="http://127.0.0.1:1", port=0, folder=str(tmp_path), unreachable_s=0.2)
    with pytest.raises(Transient, match="refused"):
        await service.run(config, stop=asyncio.Event())
    with pytest.raises(UserError, match="--coordinator"):
        await service.run(RelayConfig(port=0, folder=str(tmp_path)), stop=asyncio.Event())
