"""A manifest is visible only after every chunk of it, and unchanged chunks are not written again."""

import pytest

from farflung.broadcast.publish import PreparedPolicy, prepare, publish
from farflung.sharding.plan import ManifestLimits, check_manifest, join
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Manifest, TensorEntry

TENSORS = (TensorEntry(name="w", dtype="BF16", shape=(2, 5)),)
FILES = {"model.safetensors": b"0123456789", "config.json": b"{}"}


def prepared(files: dict[str, bytes] = FILES, version: int = 0) -> PreparedPolicy:
    return prepare(
        files,
        tensors=TENSORS,
        pool_digest=sha256_hex(b"pool"),
        policy_version=version,
        optimizer_step=version * 2,
        published_at_ms=10,
        expires_at_ms=20,
        previous_digest=sha256_hex(b"previous") if version else "",
        chunk_bytes=4,
    )


class Server:
    """Remembers what is written, in order."""

    def __init__(self, refuses: str = "") -> None:
        self.log: list[str] = []
        self.chunks: dict[str, bytes] = {}
        self.manifests: list[Manifest] = []
        self.refuses = refuses

    async def put_chunk(self, digest: str, data: bytes) -> None:
        if digest == self.refuses:
            raise OSError("refused")
        assert sha256_hex(data) == digest
        self.log.append(digest)
        self.chunks[digest] = data

    async def put_manifest(self, manifest: Manifest) -> None:
        assert all(chunk.sha256 in self.chunks for file in manifest.files for chunk in file.chunks)
        self.log.append("manifest")
        self.manifests.append(manifest)


def test_what_was_prepared_describes_the_files_in_the_order_of_their_names() -> None:
    made = prepared(version=3)
    check_manifest(made.manifest, ManifestLimits())
    assert [file.name for file in made.manifest.files] == ["config.json", "model.safetensors"]
    assert {file.name: join(file, made.chunks) for file in made.manifest.files} == FILES
    assert made.manifest.tensors == TENSORS
    assert (made.manifest.policy_version, made.manifest.optimizer_step) == (3, 6)
    assert (made.manifest.published_at_ms, made.manifest.expires_at_ms) == (10, 20)
    assert made.manifest.previous_digest == sha256_hex(b"previous")


def test_the_policy_does_not_depend_on_time_or_chunk_size() -> None:
    assert prepared(version=3).manifest.policy_digest == prepared(version=0).manifest.policy_digest


async def test_chunks_come_first_and_the_manifest_last() -> None:
    server = Server()
    written_bytes = await publish(prepared(), server.put_chunk, server.put_manifest)
    assert written_bytes == 12
    assert server.log[-1] == "manifest"
    assert set(server.log[:-1]) == {sha256_hex(piece) for piece in (b"{}", b"0123", b"4567", b"89")}
    assert len(server.log) == 5


async def test_a_chunk_that_cannot_be_written_leaves_no_manifest() -> None:
    server = Server(refuses=sha256_hex(b"4567"))
    with pytest.raises(OSError, match="refused"):
        await publish(prepared(), server.put_chunk, server.put_manifest)
    assert server.manifests == []


async def test_unchanged_chunks_are_not_written_again() -> None:
    server, before = Server(), prepared()
    await publish(before, server.put_chunk, server.put_manifest)
    after = prepared({**FILES, "model.safetensors": b"0123XX6789"}, version=1)
    server.log.clear()
    known = frozenset(before.chunks)
    assert await publish(after, server.put_chunk, server.put_manifest, already_published=known) == 4
    assert server.log == [sha256_hex(b"XX67"), "manifest"]
    assert server.manifests[1] == after.manifest


async def test_equal_chunks_are_written_once() -> None:
    server = Server()
    await publish(prepared({"zeros": bytes(12)}), server.put_chunk, server.put_manifest)
    assert server.log == [sha256_hex(bytes(4)), "manifest"]
