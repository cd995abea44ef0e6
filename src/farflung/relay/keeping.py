"""Which versions a relay keeps, and which of their chunks its disk has room for. Pure.

versions     from the oldest that anything leased can be made from, as the coordinator says; else the newest few
chunks       of the newest version first, then of the one before it, ..., until the disk is full
"""

from collections.abc import Mapping

from farflung.wire.manifest import Chunk, Manifest

KEEP_VERSIONS = 8
"""For a relay that nobody tells what is in use."""
MAX_KEPT = 1024
"""Versions, whatever a coordinator says."""


def oldest_kept(newest: int, oldest_in_use: int | None) -> int:
    """The first version that is kept.

    Args:
        oldest_in_use: as the coordinator says; None = nobody told.
    """
    if oldest_in_use is None:
        return max(0, newest - KEEP_VERSIONS + 1)
    return min(max(oldest_in_use, newest - MAX_KEPT + 1), newest)


def chunks_of(manifest: Manifest) -> list[Chunk]:
    return [chunk for file in manifest.promised_files for chunk in file.chunks]


def kept_sizes(manifests: Mapping[int, Manifest], max_bytes: int) -> dict[str, int]:
    """sha256 -> bytes of every chunk to keep, in the order in which they are worth having."""
    sizes: dict[str, int] = {}
    left = max_bytes
    for version in sorted(manifests, reverse=True):
        for chunk in chunks_of(manifests[version]):
            if chunk.sha256 not in sizes and chunk.num_bytes <= left:
                sizes[chunk.sha256] = chunk.num_bytes
                left -= chunk.num_bytes
    return sizes
