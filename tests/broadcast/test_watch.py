"""The watch keeps the newest fetched version at hand and hands its own failure to whoever waits."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from farflung.broadcast.fetch import ChunkCache, FetchPolicy, PolicyFetcher
from farflung.broadcast.fetched import FetchedPolicy
from farflung.broadcast.publish import PreparedPolicy, prepare
from farflung.broadcast.watch import Fetch, PolicyWatch
from farflung.errors import OurFault, Transient
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Manifest


def prepared(version: int) -> PreparedPolicy:
    return prepare(
        {"model.safetensors": b"weights %d" % version},
        tensors=(),
        pool_digest=sha256_hex(b"pool"),
        policy_version=version,
        optimizer_step=version,
        published_at_ms=0,
        expires_at_ms=1,
    )


def whole_versions(fetcher: PolicyFetcher) -> Fetch:
    async def fetch(manifest: Manifest) -> FetchedPolicy:
        return FetchedPolicy(manifest=manifest, files=await fetcher.fetch(manifest))

    return fetch


class Origin:
    """Publishes what the test tells it to."""

    def __init__(self, policies: Sequence[PreparedPolicy]) -> None:
        self.chunks = {digest: data for policy in policies for digest, data in policy.chunks.items()}
        self.newest: asyncio.Queue[Manifest | OurFault | None] = asyncio.Queue()
        self.asked_above: list[int] = []
        self.watch = PolicyWatch(self.next_manifest, whole_versions(PolicyFetcher(self.get_chunk, ChunkCache(1000))))

    async def next_manifest(self, above: int) -> Manifest | None:
        self.asked_above.append(above)
        newest = await self.newest.get()
        if isinstance(newest, OurFault):
            raise newest
        return newest

    async def get_chunk(self, digest: str, num_bytes: int) -> bytes:
        return self.chunks[digest]

    async def get_chunk_or_fail(self, digest: str, num_bytes: int) -> bytes:
        if digest not in self.chunks:
            raise Transient("out of reach")
        return self.chunks[digest]


async def test_versions_are_fetched_as_they_come_and_only_the_newest_is_kept() -> None:
    policies = [prepared(version) for version in range(3)]
    origin = Origin(policies)
    running = asyncio.create_task(origin.watch.run())
    assert origin.watch.peek(-1) is None
    origin.newest.put_nowait(policies[0].manifest)
    first = await origin.watch.newer_than(-1)
    assert first.files == {"model.safetensors": b"weights 0"}
    assert origin.watch.peek(0) is None
    for newest in (None, policies[1].manifest, policies[2].manifest):
        origin.newest.put_nowait(newest)
    assert (await origin.watch.newer_than(1)).manifest == policies[2].manifest
    assert origin.watch.peek(0) == origin.watch.peek(-1)
    assert origin.asked_above[:4] == [-1, 0, 0, 1]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_what_ends_the_watch_is_raised_to_whoever_waits() -> None:
    origin = Origin([])
    running = asyncio.create_task(origin.watch.run())
    waiting = asyncio.create_task(origin.watch.newer_than(-1))
    origin.newest.put_nowait(OurFault("no coordinator"))
    with pytest.raises(OurFault, match="no coordinator"):
        await waiting
    with pytest.raises(OurFault, match="no coordinator"):
        await origin.watch.newer_than(-1)
    await running


async def test_a_version_out_of_reach_is_looked_for_again_and_a_newer_one_taken_instead() -> None:
    policies = [prepared(version) for version in range(3)]
    origin = Origin(policies[1:])
    fetcher = PolicyFetcher(origin.get_chunk_or_fail, ChunkCache(1000), FetchPolicy(max_tries=1))
    origin.watch = PolicyWatch(origin.next_manifest, whole_versions(fetcher), pause_s=0.0)
    running = asyncio.create_task(origin.watch.run())
    for manifest in (policies[0].manifest, policies[0].manifest, policies[2].manifest):
        origin.newest.put_nowait(manifest)
    assert (await origin.watch.newer_than(-1)).manifest == policies[2].manifest
    assert origin.asked_above[:3] == [-1, -1, -1]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
