"""The real client and real relays, with a bad network or a bad relay between them: who is blamed, and who gave what."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from farflung.broadcast.landing import land
from farflung.broadcast.servers import Servers
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm
from farflung.wire.manifest import Manifest
from relay_harness import CHUNK_BYTES, Origin, relaying, serving, version
from shaping_proxy import Link, Mode, ShapingProxy, shaping

NUM_CHUNKS = 60
FILE_BYTES = NUM_CHUNKS * CHUNK_BYTES


@dataclass
class Tree:
    """An origin and three relays, each behind a proxy."""

    manifest: Manifest
    content: bytes
    origin: ShapingProxy
    relays: list[ShapingProxy]

    async def fetched(self, folder: Path) -> SourceBook:
        """A client gets the version; what it knows of its servers afterwards."""
        book = SourceBook(self.origin.url)
        book.offer([relay.url for relay in self.relays])
        async with Servers() as servers:
            swarm = Swarm(servers.chunk, book, asyncio.get_running_loop().time)
            landed = await land(self.manifest, folder, swarm.get_chunk)
        assert landed["model.safetensors"].read_bytes() == self.content
        return book


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as made:
        yield made


async def tree(stack: AsyncExitStack, folder: Path, *, latency_s: float = 0.0, loss: float = 0.0) -> Tree:
    """Relays that have the whole version."""
    origin = await stack.enter_async_context(serving(Origin()))
    manifest = origin.publish(version(0, num_chunks=NUM_CHUNKS))
    content = b"".join(origin.chunks[chunk.sha256] for chunk in manifest.files[0].chunks)

    async def shaped(url: str) -> ShapingProxy:
        return await stack.enter_async_context(shaping(ShapingProxy(server=url, latency_s=latency_s, loss=loss)))

    relays = [await stack.enter_async_context(relaying(folder / str(number), origin.url)) for number in range(3)]
    await asyncio.gather(*(whole(relay, manifest) for relay in relays))
    return Tree(manifest, content, await shaped(origin.url), [await shaped(relay) for relay in relays])


async def whole(relay: str, manifest: Manifest) -> None:
    async with Servers() as servers:
        await servers.latest_manifest(relay, -1, 5)
        for chunk in manifest.files[0].chunks:
            await servers.chunk(relay, chunk.sha256, chunk.num_bytes)


def given(book: SourceBook, proxies: Sequence[ShapingProxy]) -> list[int]:
    return [book.bytes_from.get(proxy.url, 0) for proxy in proxies]


async def test_three_good_relays_share_the_work_and_the_origin_has_none(stack: AsyncExitStack, tmp_path: Path) -> None:
    net = await tree(stack, tmp_path)
    book = await net.fetched(tmp_path / "client")
    assert sum(given(book, net.relays)) == FILE_BYTES
    assert min(given(book, net.relays)) >= FILE_BYTES / 10
    assert (net.origin.num_bytes, dict(book.liars)) == (0, {})


@pytest.mark.parametrize("mode", ["gone", "silent", "drip", "lie"])
async def test_one_bad_relay_of_three_is_left_aside_and_blamed_only_if_it_lied(
    mode: Mode, stack: AsyncExitStack, tmp_path: Path
) -> None:
    net = await tree(stack, tmp_path)
    bad, *good = net.relays
    bad.mode = mode
    book = await net.fetched(tmp_path / "client")
    assert given(book, [bad]) == [0]
    assert sum(given(book, good)) == FILE_BYTES
    assert net.origin.num_bytes == 0
    assert set(book.liars) == ({bad.url} if mode == "lie" else set())


@pytest.mark.parametrize("mode", ["gone", "silent", "drip", "lie"])
async def test_a_relay_that_turns_bad_in_the_middle_costs_no_byte(
    mode: Mode, stack: AsyncExitStack, tmp_path: Path
) -> None:
    net = await tree(stack, tmp_path, latency_s=0.005)
    bad, *good = net.relays
    getting = asyncio.create_task(net.fetched(tmp_path / "client"))
    await bad.answered.wait()
    bad.mode = mode
    book = await getting
    assert sum(given(book, net.relays)) == FILE_BYTES
    assert max(given(book, [bad])) < min(given(book, good))
    assert set(book.liars) == ({bad.url} if mode == "lie" else set())


async def test_a_slow_relay_gives_little(stack: AsyncExitStack, tmp_path: Path) -> None:
    net = await tree(stack, tmp_path)
    slow = net.relays[0]
    slow.link.rate = 2 * CHUNK_BYTES
    book = await net.fetched(tmp_path / "client")
    assert given(book, [slow])[0] <= FILE_BYTES / 10
    assert sum(given(book, net.relays)) == FILE_BYTES
    assert net.origin.num_bytes == 0


async def test_a_stale_relay_has_nothing_to_give_and_is_no_liar(stack: AsyncExitStack, tmp_path: Path) -> None:
    net = await tree(stack, tmp_path)
    elsewhere = await stack.enter_async_context(serving(Origin()))
    elsewhere.publish(version(0, salt=9, num_chunks=NUM_CHUNKS))
    stale = await stack.enter_async_context(relaying(tmp_path / "stale", elsewhere.url))
    net.relays[0].server = stale
    book = await net.fetched(tmp_path / "client")
    assert given(book, net.relays[:1]) == [0]
    assert sum(given(book, net.relays)) == FILE_BYTES
    assert not book.liars


async def test_without_any_good_relay_the_origin_gives_all(stack: AsyncExitStack, tmp_path: Path) -> None:
    net = await tree(stack, tmp_path)
    modes: tuple[Mode, ...] = ("gone", "lie", "silent")
    for relay, mode in zip(net.relays, modes, strict=True):
        relay.mode = mode
    book = await net.fetched(tmp_path / "client")
    assert given(book, [net.origin]) == [FILE_BYTES]
    assert set(book.liars) == {net.relays[1].url}
    assert net.relays[2].num_connections < NUM_CHUNKS / 3  # one that never answers is not asked for every chunk


async def test_far_away_lossy_and_narrow_networks_bring_every_byte_once(stack: AsyncExitStack, tmp_path: Path) -> None:
    net = await tree(stack, tmp_path, latency_s=0.01, loss=0.05)
    client = Link(rate=2 * FILE_BYTES)
    for proxy in net.relays:
        proxy.client = client
    book = await net.fetched(tmp_path / "client")
    assert sum(given(book, net.relays)) == FILE_BYTES
    assert not book.liars


async def test_a_relay_behind_a_bad_network_tells_stale_upstreams_from_true_ones(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    origin = await stack.enter_async_context(serving(Origin()))
    old = origin.publish(version(0))
    frozen = await stack.enter_async_context(serving(Origin()))
    frozen.publish(version(0))
    far = await stack.enter_async_context(shaping(ShapingProxy(server=origin.url, latency_s=0.02, loss=0.1)))
    relay = await stack.enter_async_context(relaying(tmp_path, far.url, frozen.url))
    new = origin.publish(version(1, old))
    async with Servers() as servers:
        assert await servers.latest_manifest(relay, 0, 5) == new
    await whole(relay, new)
