"""A fetched policy is whole and true, however the servers behave, and costs no more than what changed."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from farflung.broadcast.fetch import ChunkCache, FetchPolicy, PolicyFetcher
from farflung.broadcast.publish import PreparedPolicy, prepare
from farflung.errors import OurFault, PeerFault, Transient
from farflung.sharding.plan import ManifestLimits
from farflung.wire.canonical import sha256_hex

FILES = {"model.safetensors": b"0123456789ab", "config.json": b"{}"}
OTHER = {**FILES, "model.safetensors": b"0123XX6789ab"}
FAST = FetchPolicy(max_concurrent=2, max_tries=3, first_pause_s=0.5)


def prepared(files: dict[str, bytes] = FILES) -> PreparedPolicy:
    return prepare(
        files,
        tensors=(),
        pool_digest=sha256_hex(b"pool"),
        policy_version=0,
        optimizer_step=0,
        published_at_ms=0,
        expires_at_ms=1,
        chunk_bytes=4,
    )


Reply = Callable[[int], bytes]
"""Number of the request for this chunk, from 1 -> answer."""


class Server:
    """Serves the chunks of some policies; `misbehave` replaces the answers for single chunks."""

    def __init__(self, *policies: PreparedPolicy) -> None:
        self.chunks = {digest: data for policy in policies for digest, data in policy.chunks.items()}
        self.misbehave: dict[str, Reply] = {}
        self.requests: list[str] = []
        self.num_open = self.max_open = 0
        self.pauses: list[float] = []

    async def get(self, digest: str, num_bytes: int) -> bytes:
        self.requests.append(digest)
        self.num_open += 1
        self.max_open = max(self.max_open, self.num_open)
        try:
            await asyncio.sleep(0)
            answer = self.misbehave.get(digest, lambda number: self.chunks[digest])(self.requests.count(digest))
        finally:
            self.num_open -= 1
        assert num_bytes == len(self.chunks[digest])
        return answer

    async def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)

    def fetcher(self, max_bytes: int = 1000, policy: FetchPolicy = FAST) -> PolicyFetcher:
        return PolicyFetcher(self.get, ChunkCache(max_bytes), policy, sleep=self.sleep)


def unreachable_until(number_of_success: int, data: bytes) -> Reply:
    def reply(number: int) -> bytes:
        if number < number_of_success:
            raise Transient("connection refused")
        return data

    return reply


async def test_a_policy_arrives_whole() -> None:
    made = prepared()
    server = Server(made)
    assert await server.fetcher().fetch(made.manifest) == FILES
    assert sorted(server.requests) == sorted(made.chunks)


async def test_only_the_chunks_of_the_named_files_are_fetched() -> None:
    made = prepared()
    server = Server(made)
    assert await server.fetcher().fetch(made.manifest, {"config.json"}) == {"config.json": b"{}"}
    assert server.requests == [sha256_hex(b"{}")]


async def test_only_changed_chunks_are_fetched_for_the_next_version() -> None:
    before, after = prepared(), prepared(OTHER)
    server = Server(before, after)
    fetcher = server.fetcher()
    await fetcher.fetch(before.manifest)
    server.requests.clear()
    assert await fetcher.fetch(after.manifest) == OTHER
    assert server.requests == [sha256_hex(b"XX67")]
    server.requests.clear()
    assert await fetcher.fetch(after.manifest) == OTHER
    assert server.requests == []


async def test_a_cache_that_is_too_small_costs_fetches_but_never_truth() -> None:
    before, after = prepared(), prepared(OTHER)
    server = Server(before, after)
    for max_bytes in (0, 4, 8):
        fetcher = server.fetcher(max_bytes)
        assert await fetcher.fetch(before.manifest) == FILES
        assert await fetcher.fetch(after.manifest) == OTHER


async def test_no_more_requests_are_open_at_once_than_allowed() -> None:
    made = prepared({"f": bytes(range(100))})
    server = Server(made)
    await server.fetcher().fetch(made.manifest)
    assert server.max_open == 2


async def test_a_server_out_of_reach_is_asked_again_with_growing_pauses() -> None:
    made = prepared()
    server = Server(made)
    server.misbehave[sha256_hex(b"4567")] = unreachable_until(3, b"4567")
    assert await server.fetcher().fetch(made.manifest) == FILES
    assert server.pauses == [0.5, 1.0]


async def test_a_chunk_that_stays_out_of_reach_is_transient() -> None:
    made = prepared()
    server = Server(made)
    server.misbehave[sha256_hex(b"4567")] = unreachable_until(4, b"4567")
    with pytest.raises(Transient, match="connection refused"):
        await server.fetcher().fetch(made.manifest)
    assert server.requests.count(sha256_hex(b"4567")) == 3


async def test_mallory_a_wrong_chunk_is_refused_on_arrival_and_asked_for_again() -> None:
    made = prepared()
    server = Server(made)
    server.misbehave[sha256_hex(b"4567")] = lambda number: b"evil" if number == 1 else b"4567"
    assert await server.fetcher().fetch(made.manifest) == FILES


@pytest.mark.parametrize("answer", [b"evil", b"", b"456", b"45678"])
async def test_mallory_who_never_gives_the_true_chunk_is_blamed_and_nothing_of_hers_is_kept(answer: bytes) -> None:
    made = prepared()
    server = Server(made)
    server.misbehave[sha256_hex(b"4567")] = lambda number: answer
    cache = ChunkCache(1000)
    with pytest.raises(PeerFault, match="not chunk"):
        await PolicyFetcher(server.get, cache, FAST, sleep=server.sleep).fetch(made.manifest)
    assert sha256_hex(b"4567") not in cache
    assert sha256_hex(answer) not in cache


async def test_mallory_a_manifest_beyond_the_limits_is_refused_before_any_request() -> None:
    made = prepared()
    server = Server(made)
    tight = FetchPolicy(limits=ManifestLimits(max_total_bytes=13))
    with pytest.raises(PeerFault, match="manifest"):
        await server.fetcher(policy=tight).fetch(made.manifest)
    forged = replace(made.manifest, policy_digest=sha256_hex(b"another"))
    with pytest.raises(PeerFault, match="manifest"):
        await server.fetcher().fetch(forged)
    assert server.requests == []


async def test_a_failure_of_our_own_ends_the_fetch_and_leaves_no_request_behind() -> None:
    made = prepared({"f": bytes(range(100))})
    server = Server(made)

    def crash(number: int) -> bytes:
        raise OurFault("no memory")

    server.misbehave[sha256_hex(bytes(range(4)))] = crash
    with pytest.raises(OurFault, match="no memory"):
        await server.fetcher().fetch(made.manifest)
    assert server.num_open == 0
    assert len(server.requests) < 25


async def test_chunks_that_arrived_before_a_failure_are_not_fetched_again() -> None:
    made = prepared()
    server = Server(made)
    server.misbehave[sha256_hex(b"89ab")] = unreachable_until(4, b"89ab")
    fetcher = server.fetcher()
    with pytest.raises(Transient):
        await fetcher.fetch(made.manifest)
    server.misbehave.clear()
    server.requests.clear()
    assert await fetcher.fetch(made.manifest) == FILES
    assert server.requests == [sha256_hex(b"89ab")]


def test_the_cache_drops_what_was_used_longest_ago_and_stays_within_its_bound() -> None:
    cache = ChunkCache(max_bytes=10)
    for name in ("a", "b"):
        cache.put(name, bytes(5))
    assert cache.get("a") == bytes(5)
    cache.put("c", bytes(5))
    assert ("a" in cache, "b" in cache, "c" in cache) == (True, False, True)
    assert cache.num_bytes == 10
    cache.put("a", bytes(5))
    assert cache.num_bytes == 10
    cache.put("huge", bytes(11))
    assert "huge" not in cache
    assert cache.num_bytes <= 10
    assert cache.get("never") is None
