"""Making a policy version visible: chunks first, manifest last, so that a visible manifest is a complete version.

This module does not know where chunks go (the caller passes the two writers) or how weights become files.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from farflung.broadcast.pieces import Pieces
from farflung.sharding.plan import cut
from farflung.wire.manifest import Manifest, ManifestFile, TensorEntry, WeightsPatch, policy_digest

CHUNK_BYTES = 4 << 20
"""Default chunk: what a receiver holds for every connection, and what each level of a tree adds to the time."""

MAX_CONCURRENT = 4
"""Chunks that are written at once: while one is hashed and synced to disk, others are on their way."""

PutChunk = Callable[[str, bytes], Awaitable[None]]
"""Writes a chunk under its sha256; writing one that is there already is a no-op."""
PutManifest = Callable[[Manifest], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CutFiles:
    """Files as a manifest describes them, with their chunks."""

    files: tuple[ManifestFile, ...]
    chunks: Pieces


def cut_files(files: Mapping[str, bytes], chunk_bytes: int) -> CutFiles:
    """In name order."""
    described = tuple(cut(name, data, chunk_bytes) for name, data in sorted(files.items()))
    return CutFiles(files=described, chunks=Pieces.of(described, files))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PatchOffer:
    """A patch that is published with a version."""

    file: str
    """Name of the file that it makes."""
    base_sha256: str
    data: bytes
    is_alone: bool
    """Whether that file is not published whole beside it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PreparedPolicy:
    """A version that is ready to be published."""

    manifest: Manifest
    chunks: Mapping[str, bytes]
    """sha256 -> bytes of every chunk that the manifest promises."""


def prepare(
    files: Mapping[str, bytes],
    *,
    tensors: Iterable[TensorEntry],
    pool_digest: str,
    policy_version: int,
    optimizer_step: int,
    published_at_ms: int,
    expires_at_ms: int,
    previous_digest: str = "",
    curriculum_digest: str = "",
    chunk_bytes: int = CHUNK_BYTES,
    base: CutFiles | None = None,
    patch: PatchOffer | None = None,
) -> PreparedPolicy:
    """Cut a policy's files and describe them. Time is an argument; the signature is left to the signer.

    Args:
        base: weights that were cut before and stay; `files` has an adapter beside them then.
        patch: on the version before, beside one of the files or in its place.
    """
    kept = CutFiles(files=(), chunks=Pieces()) if base is None else base
    is_alone = patch is not None and patch.is_alone
    unpublished = {patch.file} if patch is not None and is_alone else set()
    fresh = cut_files({name: data for name, data in files.items() if name not in unpublished}, chunk_bytes)
    only_described = [cut(name, files[name], chunk_bytes) for name in unpublished]
    described = tuple(sorted((*fresh.files, *kept.files, *only_described), key=lambda file: file.name))
    patch_file = None if patch is None else cut_files({f"{patch.file}.patch": patch.data}, chunk_bytes)
    manifest = Manifest(
        pool_digest=pool_digest,
        policy_version=policy_version,
        policy_digest=policy_digest(described),
        optimizer_step=optimizer_step,
        kind="adapter" if base is not None else "patch" if is_alone else "snapshot",
        files=described,
        patch=None if patch is None or patch_file is None else _describe(patch, patch_file, policy_version),
        tensors=tuple(tensors),
        published_at_ms=published_at_ms,
        expires_at_ms=expires_at_ms,
        previous_digest=previous_digest,
        curriculum_digest=curriculum_digest,
    )
    of_patch = Pieces() if patch_file is None else patch_file.chunks
    chunks = kept.chunks.with_those_of(fresh.chunks).with_those_of(of_patch)
    return PreparedPolicy(manifest=manifest, chunks=chunks)


def _describe(patch: PatchOffer, cut_patch: CutFiles, policy_version: int) -> WeightsPatch:
    return WeightsPatch(
        file=patch.file,
        base_version=policy_version - 1,
        base_sha256=patch.base_sha256,
        content=cut_patch.files[0],
    )


async def publish(
    prepared: PreparedPolicy,
    put_chunk: PutChunk,
    put_manifest: PutManifest,
    *,
    already_published: frozenset[str] = frozenset(),
) -> int:
    """Write the chunks that are not in `already_published`, then the manifest.

    Args:
        already_published: sha256 of chunks that an earlier version put there.

    Returns:
        How many chunk bytes were written.
    """
    waiting = iter([digest for digest in prepared.chunks if digest not in already_published])
    num_written = 0

    async def write() -> None:
        nonlocal num_written
        for digest in waiting:
            data = prepared.chunks[digest]
            await put_chunk(digest, data)
            num_written += len(data)

    writers = [asyncio.create_task(write()) for _ in range(MAX_CONCURRENT)]
    try:
        await asyncio.gather(*writers)
    finally:
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)  # no request outlives this call
    await put_manifest(prepared.manifest)
    return num_written
