"""Chunks that outlive the process: a worker that is killed while it fetches a version goes on with what had come.

Does not know where chunks come from; what is on the shelf is believed after its hash was checked (`broadcast.shelf`).
"""

import asyncio
import logging

from farflung.broadcast.fetch import ChunkBytes, GetChunk
from farflung.broadcast.shelf import Shelf
from farflung.errors import OurFault

logger = logging.getLogger(__name__)


def kept_on(shelf: Shelf, get_chunk: GetChunk) -> GetChunk:
    """From the shelf, else from `get_chunk`, which gives true bytes; these are on the shelf then."""

    async def get(sha256: str, num_bytes: int) -> ChunkBytes:
        path = await asyncio.to_thread(shelf.path, sha256)
        if path is not None:
            try:
                return await asyncio.to_thread(path.read_bytes)
            except FileNotFoundError:  # another process of this folder made room
                pass
        data = await get_chunk(sha256, num_bytes)
        try:
            await asyncio.to_thread(shelf.put, sha256, data, ())
        except OurFault as fault:  # without it the work goes on; only a restart will cost more
            logger.warning("%s: it is not kept", fault)
        return data

    return get
