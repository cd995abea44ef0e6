"""Following versions by patches and snapshots: routes, exactness, lies, interruptions."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from safetensors.numpy import save

from farflung.broadcast.fetch import ChunkCache, FetchPolicy, PolicyFetcher
from farflung.broadcast.fetched import FetchedPolicy
from farflung.broadcast.follow import PolicyFollower
from farflung.broadcast.publish import PatchOffer, PreparedPolicy, prepare
from farflung.errors import PeerFault, Transient
from farflung.sharding.patch_build import build_patch
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Manifest

WEIGHTS = "model.safetensors"
Alter = Callable[[int, bytes], bytes]


class Run:
    """A trainer, and servers that have what it promised."""

    def __init__(self, *, snapshot_every: int = 4, num_changed: int = 3, chunk_bytes: int = 512) -> None:
        self.snapshot_every, self.num_changed, self.chunk_bytes = snapshot_every, num_changed, chunk_bytes
        self.most_moved = 1
        self.dice = np.random.default_rng(0)
        self.tensors = {
            "a": self.dice.integers(0, 1 << 16, (40, 50), dtype=np.uint16).view(np.float16),
            "b": np.arange(7, dtype=np.float32),
            "empty": np.zeros((0, 3), np.float16),
        }
        self.files: list[bytes] = []
        self.manifests: list[Manifest] = []
        self.chunks: dict[str, bytes] = {}
        self.served: list[str] = []
        self.fails_at: int | None = None

    def publish(self, *, patch: bytes | None = None, is_whole: bool = False) -> Manifest:
        version = len(self.files)
        if version:
            where = self.dice.integers(0, 2000, self.num_changed)
            self.tensors["a"].view(np.uint16).reshape(-1)[where] ^= self.dice.integers(
                1, self.most_moved + 1, self.num_changed, dtype=np.uint16
            )
            self.tensors["b"][version % 7] = -version
        self.files.append(save(self.tensors))
        made = self._prepared(version, patch, is_whole or version % self.snapshot_every == 0)
        self.chunks |= {sha256: bytes(data) for sha256, data in made.chunks.items()}
        self.manifests.append(made.manifest)
        return made.manifest

    def _prepared(self, version: int, patch: bytes | None, is_snapshot: bool) -> PreparedPolicy:
        offer = None
        if version:
            patch = build_patch(self.files[-2], self.files[-1]) if patch is None else patch
            assert patch is not None
            offer = PatchOffer(
                file=WEIGHTS, base_sha256=sha256_hex(self.files[-2]), data=patch, is_alone=not is_snapshot
            )
        return prepare(
            {WEIGHTS: self.files[-1], "config.json": b"{}"}, tensors=(), pool_digest="ab" * 32,
            policy_version=version, optimizer_step=version, published_at_ms=0, expires_at_ms=1,
            previous_digest=self.manifests[-1].digest() if version else "", chunk_bytes=self.chunk_bytes, patch=offer,
        )  # fmt: skip

    async def get_chunk(self, sha256: str, num_bytes: int) -> bytes:
        if self.fails_at is not None and len(self.served) >= self.fails_at:
            raise Transient("gone")
        if sha256 not in self.chunks:
            raise Transient("nobody promised this chunk")
        self.served.append(sha256)
        return self.chunks[sha256]

    async def manifest(self, version: int) -> Manifest | None:
        return self.manifests[version]

    def follower(self, **rest: Callable[[PeerFault], None]) -> PolicyFollower:
        policy = FetchPolicy(max_tries=1, max_concurrent=1)
        fetcher = PolicyFetcher(self.get_chunk, ChunkCache(1 << 20), policy)
        return PolicyFollower(fetcher, self.manifest, weights_name=WEIGHTS, **rest)

    def check(self, fetched: FetchedPolicy) -> None:
        assert fetched.weights is not None
        assert fetched.weights.data == self.files[fetched.manifest.policy_version]
        assert fetched.files == {"config.json": b"{}"}


def patch_bytes(manifest: Manifest) -> int:
    assert manifest.patch is not None
    return manifest.patch.content.num_bytes


async def test_whoever_follows_fetches_patches_alone_even_where_there_is_a_snapshot() -> None:
    run = Run()
    run.publish()
    follower = run.follower()
    run.check(await follower.fetch(run.manifests[0]))
    for _ in range(9):
        run.served.clear()
        manifest = run.publish()
        run.check(await follower.fetch(manifest))
        assert sum(len(run.chunks[sha256]) for sha256 in run.served) == patch_bytes(manifest)


async def test_a_late_joiner_gets_the_newest_snapshot_and_the_patches_since() -> None:
    run = Run()
    for _ in range(7):
        run.publish()
    run.check(await run.follower().fetch(run.manifests[6]))
    promised = {
        chunk.sha256
        for manifest in run.manifests[4:]
        for file in manifest.promised_files
        for chunk in file.chunks
    }  # fmt: skip
    assert set(run.served) <= promised
    assert run.manifests[6].kind == "patch"


@pytest.mark.parametrize(("num_changed", "is_snapshot_cheaper"), [(1, False), (1000, True)])
async def test_far_behind_the_cheaper_way_is_taken(num_changed: int, is_snapshot_cheaper: bool) -> None:
    run = Run(num_changed=num_changed)
    run.most_moved = 60_000 if is_snapshot_cheaper else 1
    run.publish()
    follower = run.follower()
    await follower.fetch(run.manifests[0])
    for _ in range(4):
        run.publish()
    run.served.clear()
    run.check(await follower.fetch(run.manifests[4]))
    weights = next(file for file in run.manifests[4].files if file.name == WEIGHTS)
    assert ({chunk.sha256 for chunk in weights.chunks} <= set(run.served)) is is_snapshot_cheaper


async def test_a_chain_of_fifty_random_steps_is_the_snapshot_bit_for_bit() -> None:
    run = Run(snapshot_every=1000)
    for _ in range(51):
        run.publish()
    fetched = await run.follower().fetch(run.manifests[50])
    run.check(fetched)
    assert fetched.weights is not None
    assert fetched.weights.sha256 == sha256_hex(run.files[50])


async def test_interrupted_at_every_chunk_it_goes_on_and_fetches_nothing_twice() -> None:
    """A late joiner over a snapshot and three patches; whatever came, or was reached, stays."""
    run = Run(chunk_bytes=256)
    for _ in range(4):
        run.publish()
    await run.follower().fetch(run.manifests[3])
    num_chunks = len(run.served)
    assert num_chunks > 15
    for boundary in range(num_chunks):
        run.served.clear()
        follower = run.follower()
        run.fails_at = boundary
        with pytest.raises(Transient):
            await follower.fetch(run.manifests[3])
        run.fails_at = None
        run.check(await follower.fetch(run.manifests[3]))
        assert len(run.served) == len(set(run.served)) == num_chunks


async def test_what_changed_is_known_over_several_versions_and_only_as_long_as_it_is_worth_it() -> None:
    run = Run(num_changed=10)
    run.publish()
    follower = run.follower()
    await follower.fetch(run.manifests[0])
    for _ in range(40):
        run.publish()
        fetched = await follower.fetch(run.manifests[-1])
    weights = fetched.weights
    assert weights is not None
    changed = weights.changed_since(37)
    assert changed is not None
    before, after = (run.files[version] for version in (37, 40))
    for name, start, count, dtype in (("b", 0, 7, np.float32), ("a", 28, 2000, np.uint16)):
        body = 8 + int.from_bytes(before[:8], "little") + start
        old, new = (np.frombuffer(data, dtype, count, body) for data in (before, after))
        assert set(np.flatnonzero(old != new)) <= set(changed[name])  # type: ignore[arg-type]
    assert weights.changed_since(40) is None
    assert weights.changed_since(0) is None, "positions of a sixteenth of the bytes are remembered, no more"


async def test_weights_that_were_handed_out_do_not_change_under_the_reader() -> None:
    run = Run()
    run.publish()
    follower = run.follower()
    first = await follower.fetch(run.manifests[0])
    await follower.fetch(run.publish())
    run.check(first)


async def test_r1_a_flipped_bit_in_any_chunk_of_a_patch_is_refused() -> None:
    run = Run()
    run.publish()
    manifest = run.publish()
    assert manifest.patch is not None
    for chunk in manifest.patch.content.chunks:
        follower = run.follower()
        await follower.fetch(run.manifests[0])
        truth = run.chunks[chunk.sha256]
        for place in (0, len(truth) // 2, len(truth) - 1):
            run.chunks[chunk.sha256] = truth[:place] + bytes([truth[place] ^ 1]) + truth[place + 1 :]
            with pytest.raises(PeerFault, match="are not chunk"):
                await follower.fetch(manifest)
        run.chunks[chunk.sha256] = truth
        run.check(await follower.fetch(manifest))


async def test_a_patch_that_the_trainer_signed_and_that_is_broken_is_the_trainers_and_a_snapshot_is_taken() -> None:
    run = Run()
    run.publish()
    good = build_patch(save({"x": np.zeros(9, np.float16)}), save({"x": np.ones(9, np.float16)}))
    run.publish(patch=good)
    faults: list[str] = []
    follower = run.follower(on_fault=lambda fault: faults.append(fault.reason))
    await follower.fetch(run.manifests[0])
    with pytest.raises(Transient, match="waiting for the next snapshot"):
        await follower.fetch(run.manifests[1])
    assert faults == ["malformed_record"]
    run.publish(is_whole=True)
    run.check(await follower.fetch(run.manifests[2]))


async def test_r5_an_old_manifest_that_the_newer_one_does_not_follow_is_a_split_view() -> None:
    run = Run()
    for _ in range(3):
        run.publish()
    run.manifests[1] = replace(run.manifests[1], optimizer_step=9)
    with pytest.raises(PeerFault, match="split_view"):
        await run.follower().fetch(run.manifests[2])


async def test_a_version_that_cannot_be_reached_is_waited_for_until_a_snapshot_comes() -> None:
    run = Run()
    for _ in range(3):
        run.publish()
    gone = set(run.chunks) - {chunk.sha256 for file in run.manifests[2].promised_files for chunk in file.chunks}
    for sha256 in gone:
        del run.chunks[sha256]
    follower = run.follower()
    with pytest.raises(Transient):
        await follower.fetch(run.manifests[2])
    run.publish(is_whole=True)
    run.check(await follower.fetch(run.manifests[3]))


async def test_two_at_once_take_turns() -> None:
    run = Run()
    for _ in range(3):
        run.publish()
    follower = run.follower()
    for fetched in await asyncio.gather(*(follower.fetch(run.manifests[version]) for version in (2, 0, 1))):
        run.check(fetched)
