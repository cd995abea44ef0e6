"""Versions on disk: interrupted anywhere, resumed, and never believed unhashed."""

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from farflung.broadcast.landing import land, num_bytes
from farflung.broadcast.publish import PatchOffer, PreparedPolicy, prepare
from farflung.errors import OurFault, PeerFault, Transient
from farflung.wire.manifest import Manifest, policy_digest

WEIGHTS = os.urandom(10_500)
FILES = {"weights": WEIGHTS, "empty": b"", "config": b"{}"}


def prepared(patch: PatchOffer | None = None) -> PreparedPolicy:
    return prepare(
        FILES, tensors=(), pool_digest="ab" * 32, policy_version=3, optimizer_step=3, published_at_ms=0,
        expires_at_ms=1, chunk_bytes=1000, patch=patch,
    )  # fmt: skip


class Server:
    """Gives chunks; may fall silent after some of them."""

    def __init__(self, policy: PreparedPolicy, num_given: int = 1 << 30) -> None:
        self.chunks = policy.chunks
        self.num_left = num_given
        self.asked: list[str] = []

    async def get_chunk(self, sha256: str, num_bytes: int) -> bytes:
        await asyncio.sleep(0)
        if self.num_left == 0:
            raise Transient("gone")
        self.num_left -= 1
        self.asked.append(sha256)
        return bytes(self.chunks[sha256])


def contents(paths: dict[str, Path]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in paths.items()}


async def test_files_are_there_whole_and_progress_adds_up(tmp_path: Path) -> None:
    policy, progress = prepared(), list[int]()
    paths = await land(policy.manifest, tmp_path / "v3", Server(policy).get_chunk, on_bytes=progress.append)
    assert contents(paths) == FILES
    assert sum(progress) == num_bytes(policy.manifest) == 10_502
    assert sorted(os.listdir(tmp_path / "v3")) == ["config", "empty", "weights"]


@pytest.mark.parametrize("num_given", range(12))
async def test_interrupted_at_any_chunk_it_goes_on_without_fetching_twice(tmp_path: Path, num_given: int) -> None:
    policy = prepared()
    first, progress = Server(policy, num_given), list[int]()
    with pytest.raises(Transient, match="gone"):
        await land(policy.manifest, tmp_path, first.get_chunk, max_concurrent=3)
    second = Server(policy)
    paths = await land(policy.manifest, tmp_path, second.get_chunk, on_bytes=progress.append)
    assert contents(paths) == FILES
    assert sorted([*first.asked, *second.asked]) == sorted(policy.chunks)
    assert sum(progress) == 10_502


async def test_what_spoiled_on_disk_is_fetched_again(tmp_path: Path) -> None:
    policy = prepared()
    paths = await land(policy.manifest, tmp_path, Server(policy).get_chunk)
    spoiled = bytearray(WEIGHTS)
    spoiled[4321] ^= 1
    paths["weights"].rename(tmp_path / "weights.part")
    (tmp_path / "weights.part").write_bytes(spoiled)
    paths["config"].write_bytes(b"[]")
    server = Server(policy)
    assert contents(await land(policy.manifest, tmp_path, server.get_chunk)) == FILES
    assert len(server.asked) == 2


async def test_a_part_that_is_too_long_or_a_file_of_another_version_is_replaced(tmp_path: Path) -> None:
    policy = prepared()
    (tmp_path / "weights.part").write_bytes(b"x" * 50_000)
    (tmp_path / "config").write_bytes(b"[]")
    assert contents(await land(policy.manifest, tmp_path, Server(policy).get_chunk)) == FILES


async def test_chunks_that_are_not_the_manifests_files_are_its_makers_fault(tmp_path: Path) -> None:
    policy = prepared()
    files = tuple(replace(file, sha256="0" * 64) if file.name == "weights" else file for file in policy.manifest.files)
    lying: Manifest = replace(policy.manifest, files=files, policy_digest=policy_digest(files))
    with pytest.raises(PeerFault, match="disowns"):
        await land(lying, tmp_path, Server(policy).get_chunk)
    assert not (tmp_path / "weights.part").exists()


async def test_a_name_that_is_a_path_never_reaches_the_disk(tmp_path: Path) -> None:
    policy = prepared()
    files = tuple(
        replace(file, name="../weights") if file.name == "weights" else file for file in policy.manifest.files
    )
    evil: Manifest = replace(policy.manifest, files=files, policy_digest=policy_digest(files))
    with pytest.raises(PeerFault, match="plain file name"):
        await land(evil, tmp_path / "in", Server(policy).get_chunk)
    assert not (tmp_path / "weights").exists()


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    policy = prepared()
    with pytest.raises(OurFault, match="version 3"):
        await land(policy.manifest, tmp_path / "file" / "in", Server(policy).get_chunk)


async def test_of_a_version_that_travels_as_a_patch_the_patch_lands(tmp_path: Path) -> None:
    patch = PatchOffer(file="weights", base_sha256="cd" * 32, data=b"a patch", is_alone=True)
    policy = prepared(patch)
    paths = await land(policy.manifest, tmp_path, Server(policy).get_chunk)
    assert contents(paths) == {"config": b"{}", "empty": b"", "weights.patch": b"a patch"}
    assert num_bytes(policy.manifest) == 9
