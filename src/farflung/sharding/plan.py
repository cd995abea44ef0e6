"""Cutting files into chunks and joining them again, each chunk checkable on arrival.

    file = chunk 0 | chunk 1 | ...       all of one size except the last; each named by the sha256 of its bytes

A changed byte changes one chunk, so a client that has the others fetches that one only. This module does not know where
chunks are kept or how they travel.
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD, sha256_hex
from farflung.wire.manifest import Chunk, Manifest, ManifestFile, policy_digest

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestLimits:
    """What a client is willing to fetch for one version."""

    max_files: int = 64
    max_chunks: int = 65_536
    max_chunk_bytes: int = 64 << 20
    """A chunk is held in memory whole while it is checked."""
    max_total_bytes: int = 1 << 40


def cut(name: str, data: bytes | memoryview, chunk_bytes: int) -> ManifestFile:
    """Describe `data` as chunks of `chunk_bytes`, the last one shorter; an empty file has no chunk."""
    if chunk_bytes < 1:
        raise ValueError(f"chunk_bytes is {chunk_bytes}: it must be >= 1")
    view = memoryview(data)
    pieces = [view[start : start + chunk_bytes] for start in range(0, len(view), chunk_bytes)]
    chunks = tuple(
        Chunk(index=index, num_bytes=len(piece), sha256=sha256_hex(piece)) for index, piece in enumerate(pieces)
    )
    return ManifestFile(name=name, num_bytes=len(view), sha256=sha256_hex(view), chunks=chunks)


def missing(files: Iterable[ManifestFile], have: Container[str]) -> list[Chunk]:
    """Chunks that are not in `have` (their sha256), each once, in the order of the files."""
    wanted = {chunk.sha256: chunk for file in files for chunk in file.chunks}
    return [chunk for digest, chunk in wanted.items() if digest not in have]


def check_chunk(chunk: Chunk, data: bytes | bytearray) -> None:
    """Raises `PeerFault` unless `data` is the chunk's content."""
    if len(data) != chunk.num_bytes or sha256_hex(data) != chunk.sha256:
        raise PeerFault(MALFORMED_RECORD, f"{len(data)} bytes are not chunk {chunk.sha256} of {chunk.num_bytes} bytes")


def join(file: ManifestFile, chunk_of: Mapping[str, bytes | bytearray]) -> bytes:
    """The file's bytes from its chunks (sha256 -> bytes).

    Raises:
        KeyError: a chunk is not there.
        PeerFault: the whole has another size or hash than the manifest says; it names the chunk that has, if one has.
    """
    data = b"".join(chunk_of[chunk.sha256] for chunk in file.chunks)
    if len(data) != file.num_bytes or sha256_hex(data) != file.sha256:
        for chunk in file.chunks:
            check_chunk(chunk, chunk_of[chunk.sha256])
        raise PeerFault(MALFORMED_RECORD, f"{file.name}: chunks join to {len(data)} bytes that the manifest disowns")
    return data


def with_offsets(file: ManifestFile) -> list[tuple[int, Chunk]]:
    """(first byte in the file, chunk), in order."""
    ends = accumulate(chunk.num_bytes for chunk in file.chunks)
    return [(end - chunk.num_bytes, chunk) for end, chunk in zip(ends, file.chunks, strict=True)]


def check_manifest(manifest: Manifest, limits: ManifestLimits) -> None:
    """Refuse a manifest that does not describe one policy within the limits, before anything is fetched for it.

    Raises:
        PeerFault: names are not plain or not unique, sizes do not add up, chunks are out of order, a limit is exceeded,
            or the policy digest is not that of the files.
    """
    described = (*manifest.files, *(() if manifest.patch is None else (manifest.patch.content,)))
    names = [file.name for file in described]
    num_chunks = sum(len(file.chunks) for file in described)
    total_bytes = sum(file.num_bytes for file in described)
    if not 1 <= len(names) <= limits.max_files or len(set(names)) != len(names):
        raise _broken(f"{len(names)} files, {len(set(names))} names: 1 to {limits.max_files} distinct ones allowed")
    if num_chunks > limits.max_chunks or total_bytes > limits.max_total_bytes:
        raise _broken(f"{num_chunks} chunks, {total_bytes} bytes: more than {limits}")
    for file in described:
        _check_file(file, limits)
    if policy_digest(manifest.files) != manifest.policy_digest:
        raise _broken(f"the files are not policy {manifest.policy_digest}")


def _check_file(file: ManifestFile, limits: ManifestLimits) -> None:
    if not _PLAIN_NAME.fullmatch(file.name):
        raise _broken(f"{file.name!r} is not a plain file name")
    if [chunk.index for chunk in file.chunks] != list(range(len(file.chunks))):
        raise _broken(f"{file.name}: chunks are not numbered 0, 1, ...")
    if any(not 1 <= chunk.num_bytes <= limits.max_chunk_bytes for chunk in file.chunks):
        raise _broken(f"{file.name}: a chunk is empty or larger than {limits.max_chunk_bytes} bytes")
    if sum(chunk.num_bytes for chunk in file.chunks) != file.num_bytes:
        raise _broken(f"{file.name}: chunks do not add up to {file.num_bytes} bytes")


def _broken(detail: str) -> PeerFault:
    return PeerFault(MALFORMED_RECORD, f"manifest: {detail}")
