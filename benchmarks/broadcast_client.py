"""One downloader of `benchmarks.broadcast`, ours: python -m benchmarks.broadcast_client FOLDER ORIGIN [RELAY ...]

Waits for the first version of a pool and lands it on disk: from the relays, hashed on arrival. With `--follow` before
FOLDER it has the first version in memory, as a worker, and waits for the second. Writes the file `ready` when it waits.
"""

import asyncio
import sys
import time
from pathlib import Path

from farflung.broadcast.fetch import ChunkCache, PolicyFetcher
from farflung.broadcast.follow import PolicyFollower
from farflung.broadcast.landing import land
from farflung.broadcast.servers import Servers
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm
from farflung.broadcast.trust import ManifestTrust

WAIT_S = 20.0
WEIGHTS = "model.safetensors"


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


async def follow(folder: Path, origin: str, relays: list[str]) -> None:
    """The first version, `ready`, the second."""
    book = SourceBook(origin)
    book.offer(relays)
    async with Servers() as servers:
        swarm = Swarm(servers.chunk, book, asyncio.get_running_loop().time)
        fetcher = PolicyFetcher(swarm.get_chunk, ChunkCache(64 << 20))
        follower = PolicyFollower(fetcher, lambda version: servers.manifest(origin, version), weights_name=WEIGHTS)
        for version in range(2):
            manifest = None
            while manifest is None:
                manifest = await servers.latest_manifest(relays[0], version - 1, WAIT_S)
            fetched = await follower.fetch(manifest)
            assert fetched.weights is not None
            assert fetched.weights.policy_version == version
            if version == 0:
                await asyncio.to_thread((folder / "ready").touch)


if __name__ == "__main__":
    is_follower, words = sys.argv[1] == "--follow", [word for word in sys.argv[1:] if word != "--follow"]
    at = Path(words[0])
    at.mkdir(parents=True)
    if is_follower:
        asyncio.run(follow(at, words[1], words[2:]))
    else:
        (at / "ready").touch()
        asyncio.run(download(at, words[1], words[2:]))
