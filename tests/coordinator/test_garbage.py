"""What is deleted from the store, and above all what is not."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farflung.coordinator.files import Files
from farflung.store.object_store import ObjectStore
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Forfeit
from farflung.wire.verdict import RejectReason


def stored(folder: Path, prefix: str) -> set[str]:
    return {key.removeprefix(f"{prefix}/") for key in ObjectStore(str(folder / "store")).keys(prefix)}


def rollouts(folder: Path) -> set[str]:
    return {f"rollouts/{name}" for name in stored(folder, "rollouts")}


def chunks_of(manifest: Any) -> set[str]:
    return {chunk.sha256 for file in manifest.files for chunk in file.chunks}


async def settled() -> None:
    """A few sweeps."""
    await asyncio.sleep(0.15)


async def eventually(condition: Callable[[], bool]) -> None:
    """Collection is nobody's answer: it comes some sweeps later, on a busy machine after a while."""
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("still there after 20 s")


async def test_chunks_stay_while_their_version_may_be_fetched_and_go_afterwards(pool: Any) -> None:
    manifests = [await (await pool.trainer()).manifest(0)]
    manifests += [(await pool.publish()).manifest for _ in range(4)]
    await settled()
    present = stored(pool.folder, "chunks")
    for manifest in manifests[3:]:
        assert chunks_of(manifest) <= present
    trainer = await pool.trainer()
    worker = await pool.worker()
    assert await worker.latest_manifest() == manifests[4]
    shared = manifests[4].files[0].chunks[0]
    assert await trainer.get_chunk(shared.sha256, shared.num_bytes), "still in use by the newest"
    gone = chunks_of(manifests[0]) - chunks_of(manifests[4])
    assert gone
    # Publications between two sweeps are collected as one, so on a busy machine it takes some more of them.
    for _ in range(6):
        await pool.publish()
        await settled()
    await eventually(lambda: not gone & stored(pool.folder, "chunks"))


async def test_chunks_stay_while_a_node_works_on_their_version(pool: Any) -> None:
    """prime-rl#1857, complaint 2: a version is deleted only when nobody works on it."""
    lease = await pool.leased()
    worker = await pool.worker()
    manifest = await worker.manifest(lease.policy_version)
    for _ in range(5):
        await pool.publish()
    await settled()
    assert chunks_of(manifest) <= stored(pool.folder, "chunks")
    assert await worker.manifest(lease.policy_version) == manifest
    await worker.forfeit(Forfeit(node="w1", lease_id=lease.lease_id))
    await settled()
    for _ in range(2):
        await pool.publish()
    await eventually(lambda: not chunks_of(manifest) <= stored(pool.folder, "chunks"))


async def test_chunks_for_the_next_version_are_not_collected_before_it_is_published(start: Any) -> None:
    """Also not when the coordinator is started again in between."""
    async with start() as pool:
        await pool.publish()
        await (await pool.trainer()).put_chunk(sha256_hex(b"next"), b"next")
        await settled()
    async with start() as pool:
        await settled()
        assert sha256_hex(b"next") in stored(pool.folder, "chunks")
        for _ in range(4):
            await pool.publish()
            await settled()
        await eventually(lambda: sha256_hex(b"next") not in stored(pool.folder, "chunks"))  # nobody published it


async def test_uploads_of_lost_leases_are_deleted_and_others_are_kept(pool: Any) -> None:
    lost = await pool.leased("w1")
    key = (await pool.uploaded(lost)).file_key
    kept = await pool.submitted("w2")
    assert rollouts(pool.folder) == {key, kept.file_key}
    await (await pool.worker("w1")).forfeit(Forfeit(node="w1", lease_id=lost.lease_id))
    await eventually(lambda: key not in rollouts(pool.folder))
    assert rollouts(pool.folder) == {kept.file_key}


async def test_an_upload_that_outlives_its_lease_leaves_nothing(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease ends after the body came and before the file is there."""
    original = Files.put_upload

    async def put_upload(self: Files, key: str, data: bytes) -> None:
        await (await pool.worker("w1")).forfeit(Forfeit(node="w1", lease_id=lost.lease_id))
        await settled()
        await original(self, key, data)

    lost = await pool.leased("w1")
    monkeypatch.setattr(Files, "put_upload", put_upload)
    await pool.uploaded(lost)
    await eventually(lambda: not rollouts(pool.folder))


async def test_what_a_crash_left_behind_goes_in_time(start: Any, tmp_path: Path) -> None:
    """An upload whose lease nobody remembers, and a file that was being written."""
    ObjectStore(str(tmp_path / "store")).put("rollouts/0/7-0-orphan.parquet", b"never submitted")
    half = tmp_path / "store" / "rollouts" / "0" / "8-0-half.parquet#1"
    half.write_bytes(b"half a fi")
    async with start(keep_versions=1) as pool:
        assert not half.exists()
        await pool.publish()
        for _ in range(40):
            if not rollouts(pool.folder):
                break
            await pool.publish()
            await settled()
        assert rollouts(pool.folder) == set()


async def test_settled_files_are_kept_by_default(pool: Any) -> None:
    await pool.accepted("w1")
    await pool.publish(await (await pool.trainer()).outcomes())
    for _ in range(3):
        await pool.publish()
    await settled()
    assert len(stored(pool.folder, "rollouts")) == len(stored(pool.folder, "evidence")) == 1


async def test_settled_files_go_when_they_are_not_to_be_kept(start: Any) -> None:
    async with start(keep_versions=1) as pool:
        await pool.publish()
        await pool.accepted("w1")
        await pool.judged(await pool.submitted("w2"), RejectReason.SCHEMA)
        await pool.publish(await (await pool.trainer()).outcomes(limit=1))
        await settled()
        assert len(stored(pool.folder, "rollouts")) == 2, "the window is still open"
        for _ in range(40):  # publications between two sweeps count as one
            if not stored(pool.folder, "rollouts") | stored(pool.folder, "evidence"):
                break
            await pool.publish()
            await settled()
        assert (await (await pool.trainer()).status()).num_files_removed == 4
