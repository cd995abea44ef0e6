"""A client in a process of its own: python landing_child.py MANIFEST FOLDER URL; prints every chunk that came."""

import asyncio
import sys
from pathlib import Path

from farflung.broadcast.landing import land
from farflung.broadcast.servers import Servers
from farflung.wire.manifest import Manifest


async def run(manifest: Manifest, folder: Path, url: str) -> None:
    async with Servers() as servers:

        async def get_chunk(sha256: str, num_bytes: int) -> bytes:
            data = bytes(await servers.chunk(url, sha256, num_bytes))
            sys.stdout.write(f"{sha256}\n")
            sys.stdout.flush()
            return data

        await land(manifest, folder, get_chunk, max_concurrent=2)


if __name__ == "__main__":
    asyncio.run(run(Manifest.from_bytes(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]), sys.argv[3]))
