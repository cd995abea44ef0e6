"""A version's files on disk, chunk by chunk in any order; a fetch that was killed goes on where it was.

    folder/name.part        the file in the making: as long as the whole, chunks written to their places as they come
    folder/name             the file, once every chunk is there and the whole has its hash

What a `.part` holds is found out by hashing it, so nothing on disk is believed and nothing has to be kept in step
with it. Memory: one chunk for each connection. Does not know servers: the caller passes what gets a true chunk
(`broadcast.swarm`).
"""

import asyncio
import hashlib
import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from farflung.broadcast.fetch import ChunkBytes, GetChunk
from farflung.errors import OurFault, PeerFault
from farflung.sharding.plan import ManifestLimits, check_manifest, with_offsets
from farflung.wire.canonical import MALFORMED_RECORD, sha256_hex
from farflung.wire.manifest import Manifest, ManifestFile

LIMITS = ManifestLimits()
_PIECE_BYTES = 1 << 20
OnBytes = Callable[[int], None]
"""Told of every chunk's bytes as they are on disk, from before or new."""


def num_bytes(manifest: Manifest) -> int:
    """Of all files that land; what `on_bytes` adds up to."""
    return sum(file.num_bytes for file in landing_files(manifest))


def landing_files(manifest: Manifest) -> tuple[ManifestFile, ...]:
    """Every file of a version; of one that travels as a patch, the patch in place of what it makes."""
    return manifest.promised_files if manifest.kind == "patch" else manifest.files


async def land(
    manifest: Manifest,
    folder: Path,
    get_chunk: GetChunk,
    *,
    max_concurrent: int = 4,
    limits: ManifestLimits = LIMITS,
    on_bytes: OnBytes = lambda _num_bytes: None,
) -> dict[str, Path]:
    """File name -> path of every file that lands (`landing_files`); those that are there already are only hashed.

    Raises:
        PeerFault: the manifest breaks its rules, or its chunks are not its files.
        Transient: a chunk stayed out of reach; what came stays on disk.
        OurFault: the disk is full or cannot be written.
    """
    check_manifest(manifest, limits)
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        return {
            file.name: await _land_file(file, folder / file.name, get_chunk, max_concurrent, on_bytes)
            for file in landing_files(manifest)
        }
    except OSError as error:
        raise OurFault(f"version {manifest.policy_version} in {folder}: {error.strerror or error}") from error


async def _land_file(
    file: ManifestFile, path: Path, get_chunk: GetChunk, max_concurrent: int, on_bytes: OnBytes
) -> Path:
    if await asyncio.to_thread(_is_file, path, file):
        on_bytes(file.num_bytes)
        return path
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.ftruncate(descriptor, file.num_bytes)
        have = await asyncio.to_thread(_chunks_there, descriptor, file)
        on_bytes(sum(chunk.num_bytes for chunk in file.chunks if chunk.index in have))
        is_whole = await _fill(file, descriptor, have, get_chunk, max_concurrent, on_bytes)
    finally:
        os.close(descriptor)
    if not is_whole:
        part.unlink()
        raise PeerFault(MALFORMED_RECORD, f"{file.name}: chunks join to a file that the manifest disowns")
    os.replace(part, path)
    return path


async def _fill(
    file: ManifestFile, descriptor: int, have: set[int], get_chunk: GetChunk, max_concurrent: int, on_bytes: OnBytes
) -> bool:
    """Get what is lacking, `max_concurrent` chunks at a time; the first failure ends it.

    Returns:
        Whether the whole is the file. It is hashed from its start as far as it is there, while the rest comes.
    """
    waiting = iter([(offset, chunk) for offset, chunk in with_offsets(file) if chunk.index not in have])
    landed = {chunk.index: asyncio.Event() for chunk in file.chunks}
    for index in have:
        landed[index].set()
    writing: set[asyncio.Task[None]] = set()

    async def work() -> None:
        for offset, chunk in waiting:
            data = await get_chunk(chunk.sha256, chunk.num_bytes)
            task = asyncio.create_task(asyncio.to_thread(_write, descriptor, data, offset))
            writing.add(task)
            await asyncio.shield(task)
            writing.remove(task)
            landed[chunk.index].set()
            on_bytes(chunk.num_bytes)

    whole = asyncio.create_task(_hash_as_it_lands(file, descriptor, landed))
    tasks = [asyncio.create_task(work()) for _ in range(max_concurrent)]
    try:
        await asyncio.gather(*tasks)
        return await whole == file.sha256
    finally:
        for task in (*tasks, whole):
            task.cancel()
        await asyncio.gather(*tasks, whole, *writing, return_exceptions=True)  # what came is kept


async def _hash_as_it_lands(file: ManifestFile, descriptor: int, landed: Mapping[int, asyncio.Event]) -> str:
    digest = hashlib.sha256()
    for offset, chunk in with_offsets(file):
        await landed[chunk.index].wait()
        await _to_its_end(asyncio.create_task(asyncio.to_thread(_hash_on, digest, descriptor, offset, chunk.num_bytes)))
    return digest.hexdigest()


def _hash_on(digest: "hashlib._Hash", descriptor: int, offset: int, num_bytes: int) -> None:
    piece = bytearray(min(num_bytes, _PIECE_BYTES))
    end = offset + num_bytes
    while offset < end:
        count = os.preadv(descriptor, [memoryview(piece)[: end - offset]], offset)
        if not count:
            return  # somebody cut the file: the hash says so
        digest.update(memoryview(piece)[:count])
        offset += count


async def _to_its_end(task: "asyncio.Task[None]") -> None:
    """A thread cannot be cancelled, and what it reads must not go away under it."""
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _write(descriptor: int, data: ChunkBytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _chunks_there(descriptor: int, file: ManifestFile) -> set[int]:
    """Chunks whose place holds their content."""
    if not file.num_bytes:
        return set()
    with mmap.mmap(descriptor, file.num_bytes, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
        return {
            chunk.index
            for offset, chunk in with_offsets(file)
            if _has_data(descriptor, offset, chunk.num_bytes)
            and sha256_hex(view[offset : offset + chunk.num_bytes]) == chunk.sha256
        }


def _has_data(descriptor: int, offset: int, num_bytes: int) -> bool:
    """False for a place that nobody wrote to, which need not be hashed (a file system without holes says True)."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA) < offset + num_bytes
    except OSError:  # ENXIO: nothing but a hole up to the end
        return False


def _is_file(path: Path, file: ManifestFile) -> bool:
    """Whether `path` is the whole file; read in pieces."""
    try:
        if path.stat().st_size != file.num_bytes:
            return False
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    except FileNotFoundError:
        return False
