"""Relays and a client in a network of their own, shaped by the kernel: unshare -rn python THIS KIND FOLDER

KIND is `rate` (one of three relays sends 2 Mbit/s) or `netem` (all packets 10 ms late, 2 % of them lost). Prints one
JSON object: who gave how many bytes. Ends with 77 and a reason when the kernel has no such queue.
"""

import asyncio
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from farflung.broadcast.landing import land
from farflung.broadcast.servers import Servers
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm
from relay_harness import Origin, relaying, serving, version

CANNOT = 77
NUM_CHUNKS, CHUNK_BYTES = 48, 50_000
SLOW_RATE = "2mbit"


def system(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stdout.write(f"{' '.join(words)}: {done.stderr.strip()}\n")
        sys.exit(CANNOT)


def tc(words: str) -> None:
    system("tc", *words.split())


def slow_down(url: str) -> None:
    """What is sent from this port is queued behind a narrow rate."""
    tc("qdisc add dev lo root handle 1: htb default 9 r2q 10000")
    tc("class add dev lo parent 1: classid 1:9 htb rate 10gbit")
    tc(f"class add dev lo parent 1: classid 1:2 htb rate {SLOW_RATE} burst 16k")
    port = urlsplit(url).port
    tc(f"filter add dev lo parent 1: protocol ip prio 1 u32 match ip sport {port} 0xffff flowid 1:2")


async def run(kind: str, folder: Path) -> dict[str, object]:
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(serving(Origin()))
        manifest = origin.publish(version(0, num_chunks=NUM_CHUNKS, chunk_bytes=CHUNK_BYTES))
        relays = [await stack.enter_async_context(relaying(folder / str(number), origin.url)) for number in range(3)]
        servers = await stack.enter_async_context(Servers())
        for relay in relays:
            await servers.latest_manifest(relay, -1, 5)
            for chunk in manifest.files[0].chunks:
                await servers.chunk(relay, chunk.sha256, chunk.num_bytes)
        if kind == "rate":
            slow_down(relays[0])
        else:
            tc("qdisc add dev lo root netem delay 10ms loss 2%")
        book = SourceBook(origin.url)
        book.offer(relays)
        client = await stack.enter_async_context(Servers())
        swarm = Swarm(client.chunk, book, asyncio.get_running_loop().time)
        landed = await land(manifest, folder / "client", swarm.get_chunk)
        is_true = len(landed["model.safetensors"].read_bytes()) == NUM_CHUNKS * CHUNK_BYTES
        given = [book.bytes_from[name] for name in (origin.url, *relays)]
        return {"is_true": is_true, "given": given, "liars": len(book.liars)}


if __name__ == "__main__":
    system("ip", "link", "set", "lo", "up")
    sys.stdout.write(json.dumps(asyncio.run(run(sys.argv[1], Path(sys.argv[2])))) + "\n")
