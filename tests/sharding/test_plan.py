"""Chunks add up to their file, and no manifest or chunk that does not is taken."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.errors import PeerFault
from farflung.sharding.plan import ManifestLimits, check_chunk, check_manifest, cut, join, missing
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Chunk, Manifest, ManifestFile, policy_digest

LIMITS = ManifestLimits(max_files=3, max_chunks=6, max_chunk_bytes=4, max_total_bytes=20)


def chunks_of(file: ManifestFile, data: bytes) -> dict[str, bytes]:
    pieces, offset = {}, 0
    for chunk in file.chunks:
        pieces[chunk.sha256] = data[offset : offset + chunk.num_bytes]
        offset += chunk.num_bytes
    return pieces


def manifest_of(*files: ManifestFile, **changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "pool_digest": sha256_hex(b"pool"),
        "policy_version": 0,
        "policy_digest": policy_digest(files),
        "optimizer_step": 0,
        "files": files,
        "tensors": (),
        "published_at_ms": 0,
        "expires_at_ms": 1,
    }
    return Manifest(**{**values, **changes})


CONFIG = cut("config.json", b"{}", 4)
WEIGHTS = cut("model.safetensors", b"0123456789", 4)


def test_a_file_is_cut_into_equal_chunks_and_a_rest() -> None:
    expected = ManifestFile(
        name="model.safetensors",
        num_bytes=10,
        sha256=sha256_hex(b"0123456789"),
        chunks=(
            Chunk(index=0, num_bytes=4, sha256=sha256_hex(b"0123")),
            Chunk(index=1, num_bytes=4, sha256=sha256_hex(b"4567")),
            Chunk(index=2, num_bytes=2, sha256=sha256_hex(b"89")),
        ),
    )
    assert cut("model.safetensors", b"0123456789", 4) == expected


@given(st.binary(max_size=200), st.integers(1, 60))
def test_cut_then_join_is_the_file(data: bytes, chunk_bytes: int) -> None:
    file = cut("f", data, chunk_bytes)
    assert len(file.chunks) == -(-len(data) // chunk_bytes)
    assert join(file, chunks_of(file, data)) == data


def test_an_empty_file_has_no_chunk_and_joins_to_nothing() -> None:
    assert cut("f", b"", 4).chunks == ()
    assert join(cut("f", b"", 4), {}) == b""


def test_chunks_of_no_size_are_refused() -> None:
    with pytest.raises(ValueError, match="it must be >= 1"):
        cut("f", b"x", 0)


def test_one_changed_byte_changes_one_chunk() -> None:
    before, after = cut("f", b"a" * 10 + b"b" * 10, 5), cut("f", b"a" * 10 + b"bXbbb" + b"b" * 5, 5)
    assert [one == other for one, other in zip(before.chunks, after.chunks, strict=True)] == [True, True, False, True]


def test_missing_are_the_chunks_that_one_has_not_each_once_and_in_order() -> None:
    twice = cut("twice", b"aaaabbbbaaaa", 4)
    files = (twice, WEIGHTS)
    digests = [chunk.sha256 for chunk in missing(files, have=())]
    assert digests == [sha256_hex(piece) for piece in (b"aaaa", b"bbbb", b"0123", b"4567", b"89")]
    have = {sha256_hex(b"aaaa"), sha256_hex(b"4567"), sha256_hex(b"unrelated")}
    assert [chunk.sha256 for chunk in missing(files, have)] == [digests[1], digests[2], digests[4]]
    assert missing(files, digests) == []


@pytest.mark.parametrize("data", [b"", b"0124", b"012", b"01230"])
def test_bytes_that_are_not_the_chunk_are_the_servers_fault(data: bytes) -> None:
    with pytest.raises(PeerFault, match="are not chunk"):
        check_chunk(WEIGHTS.chunks[0], data)
    with pytest.raises(PeerFault, match="are not chunk"):
        join(WEIGHTS, {**chunks_of(WEIGHTS, b"0123456789"), WEIGHTS.chunks[0].sha256: data})


def test_joining_without_a_chunk_names_it() -> None:
    with pytest.raises(KeyError, match=WEIGHTS.chunks[1].sha256):
        join(WEIGHTS, {WEIGHTS.chunks[0].sha256: b"0123"})


def test_good_chunks_in_another_order_are_not_the_file() -> None:
    swapped = replace(WEIGHTS, chunks=(WEIGHTS.chunks[1], WEIGHTS.chunks[0], WEIGHTS.chunks[2]))
    with pytest.raises(PeerFault, match="disowns"):
        join(swapped, chunks_of(WEIGHTS, b"0123456789"))


def test_an_honest_manifest_passes_at_every_limit() -> None:
    full = cut("f", b"x" * 8, 4)
    check_manifest(manifest_of(CONFIG, WEIGHTS, full), LIMITS)
    check_manifest(manifest_of(CONFIG, WEIGHTS, full), ManifestLimits())


def with_chunks(change: Callable[[tuple[Chunk, ...]], tuple[Chunk, ...]]) -> Manifest:
    return manifest_of(replace(WEIGHTS, chunks=change(WEIGHTS.chunks)))


MALLORY: dict[str, Manifest] = {
    "no files": manifest_of(),
    "too many files": manifest_of(*(cut(f"f{number}", b"x", 4) for number in range(4))),
    "two files of one name": manifest_of(CONFIG, CONFIG),
    "too many chunks": manifest_of(cut("f", b"0123456", 1)),
    "too many bytes": manifest_of(cut("f", b"x" * 21, 4)),
    "a chunk that is too large": manifest_of(cut("f", b"01234", 5)),
    "a path upwards": manifest_of(replace(CONFIG, name="../config.json")),
    "an absolute path": manifest_of(replace(CONFIG, name="/etc/passwd")),
    "a hidden name": manifest_of(replace(CONFIG, name=".bashrc")),
    "a name with a folder": manifest_of(replace(CONFIG, name="a/b")),
    "a name with a backslash": manifest_of(replace(CONFIG, name="a\\b")),
    "a long name": manifest_of(replace(CONFIG, name="a" * 129)),
    "chunks out of order": with_chunks(lambda chunks: chunks[::-1]),
    "a chunk twice": with_chunks(lambda chunks: (*chunks[:2], chunks[1])),
    "a chunk too few": with_chunks(lambda chunks: chunks[:2]),
    "a chunk of nothing": with_chunks(lambda chunks: (*chunks, Chunk(index=3, num_bytes=0, sha256=sha256_hex(b"")))),
    "another size": manifest_of(replace(WEIGHTS, num_bytes=11)),
    "another policy": manifest_of(CONFIG, WEIGHTS, policy_digest=sha256_hex(b"another")),
}


@pytest.mark.parametrize("name", MALLORY)
def test_mallory_a_manifest_that_breaks_a_rule_is_refused_before_a_fetch(name: str) -> None:
    with pytest.raises(PeerFault, match="malformed_record: manifest: "):
        check_manifest(MALLORY[name], LIMITS)


def test_a_policy_is_its_files_in_any_order_and_not_their_chunks() -> None:
    assert policy_digest((CONFIG, WEIGHTS)) == policy_digest((WEIGHTS, CONFIG))
    assert policy_digest((cut("model.safetensors", b"0123456789", 3),)) == policy_digest((WEIGHTS,))
    others = [replace(WEIGHTS, name="w"), replace(WEIGHTS, num_bytes=9), replace(WEIGHTS, sha256=sha256_hex(b""))]
    assert len({policy_digest((file,)) for file in [WEIGHTS, *others]}) == 4


def test_limits_are_stated_in_full() -> None:
    assert all(value > 0 for value in asdict(ManifestLimits()).values())
