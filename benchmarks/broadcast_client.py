"""One downloader of `benchmarks.broadcast`, ours: python -m benchmarks.broadcast_client FOLDER ORIGIN [RELAY ...]

Waits for the first version of a pool and lands it on disk, as a worker gets it: from the relays, hashed on arrival.
Writes the file `ready` when it waits.
"""

import asyncio
import sys
import time
from pathlib import Path

from farflung.broadcast.landing import land
from farflung.broadcast.servers import Servers
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm
from farflung.broadcast.trust import ManifestTrust

WAIT_S = 20.0


async def download(folder: Path, origin: str, relays: list[str]) -> None:
    book = SourceBook(origin)
    book.offer(relays)
    async with Servers() as servers:
        swarm = Swarm(servers.chunk, book, asyncio.get_running_loop().time)
        manifest = None
        while manifest is None:
            manifest = await servers.latest_manifest((relays or [origin])[0], -1, WAIT_S)
        ManifestTrust(trainer="").check(manifest, int(time.time() * 1000))
        await land(manifest, folder, swarm.get_chunk)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True)
    (Path(sys.argv[1]) / "ready").touch()
    asyncio.run(download(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
