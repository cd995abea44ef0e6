"""Relays in a chain: what they serve, what they refuse, and how they outlive everybody else."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from farflung.broadcast.fetch import ChunkCache, PolicyFetcher
from farflung.broadcast.servers import Servers
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm
from farflung.errors import Transient, UserError
from farflung.identity.keys import new_key
from farflung.relay import service
from farflung.relay.config import RelayConfig
from farflung.wire.manifest import Manifest
from relay_harness import Origin, relaying, serving, version


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    async with serving(Origin()) as made:
        yield made


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as made:
        yield made


def stored(folder: Path, pattern: str = "*") -> list[Path]:
    return list(folder.glob(f"??/{pattern}"))


async def newest(url: str, newer_than: int = -1, wait_s: float = 3.0) -> Manifest | None:
    async with Servers() as servers:
        return await servers.latest_manifest(url, newer_than, wait_s)


async def fetched(manifest: Manifest, *urls: str) -> bytes:
    """The weights, by a client of these servers, the first one as origin."""
    origin, *relays = urls
    book = SourceBook(origin)
    book.offer(relays)
    async with Servers() as servers:
        swarm = Swarm(servers.chunk, book, asyncio.get_running_loop().time)
        files = await PolicyFetcher(swarm.get_chunk, ChunkCache(1 << 20)).fetch(manifest)
    return files["model.safetensors"]


async def test_a_version_runs_down_a_chain_of_relays(origin: Origin, stack: AsyncExitStack, tmp_path: Path) -> None:
    first = await stack.enter_async_context(relaying(tmp_path / "1", origin.url))
    second = await stack.enter_async_context(relaying(tmp_path / "2", first))
    published = origin.publish(version(0))
    seen = await newest(second)
    assert seen == published
    assert await fetched(seen, second) == b"".join(origin.chunks[c.sha256] for c in published.files[0].chunks)
    assert max(origin.asked.values()) == 1
    following = origin.publish(version(1, published))
    assert await newest(second, newer_than=0) == following


async def test_a_chunk_is_served_as_soon_as_it_is_here_while_the_rest_is_still_coming(
    origin: Origin, stack: AsyncExitStack, tmp_path: Path
) -> None:
    manifest, chunks = version(0)
    held = manifest.files[0].chunks[-1].sha256
    release = asyncio.Event()

    async def answer(sha256: str) -> web.StreamResponse:
        if sha256 == held:
            await release.wait()
        return web.Response(body=chunks[sha256])

    origin.answer = answer
    relay = await stack.enter_async_context(relaying(tmp_path, origin.url, held_s=0.2))
    origin.publish((manifest, chunks))
    assert await newest(relay) == manifest
    async with Servers() as servers:
        first = manifest.files[0].chunks[0]
        assert await servers.chunk(relay, first.sha256, first.num_bytes) == chunks[first.sha256]
        with pytest.raises(Transient, match="503"):
            await servers.chunk(relay, held, 1000)
        waiting = asyncio.create_task(servers.chunk(relay, held, 1000))
        release.set()
        assert await waiting == chunks[held]


async def test_a_relay_that_was_stopped_goes_on_with_what_is_on_disk(
    origin: Origin, stack: AsyncExitStack, tmp_path: Path
) -> None:
    published = origin.publish(version(0))
    async with relaying(tmp_path, origin.url) as relay:
        await fetched(published, relay)
    origin.asked.clear()
    relay = await stack.enter_async_context(relaying(tmp_path, origin.url))
    assert await newest(relay) == published
    await fetched(published, relay)
    assert not origin.asked


async def test_a_chunk_that_spoiled_on_disk_is_fetched_again(
    origin: Origin, stack: AsyncExitStack, tmp_path: Path
) -> None:
    published = origin.publish(version(0))
    async with relaying(tmp_path, origin.url) as relay:
        await fetched(published, relay)
    (spoiled, *_) = published.files[0].chunks
    (tmp_path / spoiled.sha256[:2] / spoiled.sha256).write_bytes(b"!" * 1000)
    (tmp_path / spoiled.sha256[:2] / ".draft-0").write_bytes(b"half")
    relay = await stack.enter_async_context(relaying(tmp_path, origin.url))
    await newest(relay)
    await fetched(published, relay)
    assert not list(stored(tmp_path, ".draft*"))


async def test_a_lying_upstream_is_overruled_by_an_honest_one(stack: AsyncExitStack, tmp_path: Path) -> None:
    honest = await stack.enter_async_context(serving(Origin()))
    liar = await stack.enter_async_context(serving(Origin()))

    async def lie(_sha256: str) -> web.StreamResponse:
        return web.Response(body=bytes(1000))

    liar.answer = lie
    published = honest.publish(version(0))
    liar.publish(version(0))
    relay = await stack.enter_async_context(relaying(tmp_path, honest.url, liar.url))
    assert await newest(relay) == published
    await fetched(published, relay)
    assert liar.asked.total() <= 8  # those under way before the first lie was seen


async def test_a_version_that_the_trainer_did_not_sign_is_not_passed_on(
    origin: Origin, stack: AsyncExitStack, tmp_path: Path
) -> None:
    relay = await stack.enter_async_context(relaying(tmp_path, origin.url))
    origin.publish(version(0, key=new_key()))
    assert await newest(relay, wait_s=0.5) is None
    origin.publish(version(0))
    assert await newest(relay) is not None


async def test_any_one_of_three_relays_may_die_in_the_middle(stack: AsyncExitStack, tmp_path: Path) -> None:
    origin = await stack.enter_async_context(serving(Origin()))
    published = origin.publish(version(0, num_chunks=60))
    relays = [await stack.enter_async_context(relaying(tmp_path / str(number), origin.url)) for number in range(2)]
    async with AsyncExitStack() as dying:
        third = await dying.enter_async_context(relaying(tmp_path / "third", origin.url))
        for url in (*relays, third):
            await newest(url)
        getting = asyncio.create_task(fetched(published, origin.url, *relays, third))
        await asyncio.sleep(0.02)
    assert len(await getting) == 60_000


async def test_unknown_chunks_and_versions_are_refused_and_calls_are_limited(
    origin: Origin, stack: AsyncExitStack, tmp_path: Path
) -> None:
    relay = await stack.enter_async_context(relaying(tmp_path, origin.url))
    async with ClientSession() as client:
        for path in ("/v1/chunks/" + "0" * 64, "/v1/manifests/7", "/v1/chunks/..%2f..%2fetc%2fpasswd", "/v1/leases"):
            async with client.get(relay + path) as answer:
                assert answer.status == 404
        async with client.get(f"{relay}/v1/manifests/latest?newer_than=x") as answer:
            assert answer.status == 400


async def test_the_oldest_versions_make_room(origin: Origin, stack: AsyncExitStack, tmp_path: Path) -> None:
    relay = await stack.enter_async_context(relaying(tmp_path, origin.url, max_disk_bytes=1 << 20))
    last = None
    for number in range(9):
        last = origin.publish(version(number, last, num_chunks=120))
        assert await newest(relay, number - 1) == last
        await fetched(last, relay)
    kept = sum(path.stat().st_size for path in stored(tmp_path))
    assert kept <= 1 << 20
    async with Servers() as servers:
        assert await servers.manifest(relay, 0) is None
        assert await servers.manifest(relay, 8) == last


async def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    stop = asyncio.Event()
    with pytest.raises(UserError, match="--upstream"):
        await service.run(RelayConfig(port=0), stop=stop)
    config = RelayConfig(port=0, upstream=("http://127.0.0.1:1",), tls_certificate="a", tls_key=os.devnull)
    with pytest.raises(UserError, match="PEM"):
        await service.run(config, stop=stop)
