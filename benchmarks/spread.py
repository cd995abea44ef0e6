"""How long a version takes from an origin to the last worker of a tree, beside what its links allow.

spread/tree     s from the manifest being visible until the last of four clients has the version, two below each of two
                relays; the peer is the bound of a pipelined tree (`farflung.sharding.provisioning.spread_s`)

Coordinator, relays and clients are those of `benchmarks.broadcast`; before each server stands a proxy that sends at
most `RATE` and answers late, so that links limit and not the processors.
"""

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from benchmarks.broadcast import (
    FARFLUNG,
    WEIGHTS,
    check,
    coordinator,
    free_port,
    is_listening,
    process,
    publish_file,
    wait_for,
)
from benchmarks.record import record
from farflung.broadcast.publish import CHUNK_BYTES
from farflung.sharding.provisioning import Tree, spread_s

sys.path.append(str(Path(__file__).parents[1] / "tests" / "harness"))
from shaping_proxy import Link, ShapingProxy, shaping

NUM_BYTES, RATE, LATENCY_S = 16 * CHUNK_BYTES, 10_000_000, 0.02
FAN_OUT, DEPTH = 2, 2
NUM_ROUNDS = 3


def run() -> None:
    tree = Tree(fan_out=FAN_OUT, depth=DEPTH, chunk_bytes=CHUNK_BYTES, latency_s=2 * LATENCY_S)
    bound_s = spread_s(NUM_BYTES, tree, RATE)
    rounds: list[float] = []
    sent: list[float] = []
    for _ in range(NUM_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            took_s, times_sent = asyncio.run(spread(Path(folder)))
        rounds.append(took_s)
        sent.append(times_sent)
        print(f"spread/tree: {took_s:.1f} s, bound {bound_s:.1f} s, origin {times_sent:.2f} times", flush=True)
    detail = {
        "rounds": rounds,
        "times that the origin sent the version": sent,
        "bytes": NUM_BYTES,
        "chunk_bytes": CHUNK_BYTES,
        "bytes/s of each server": RATE,
        "load": os.getloadavg()[0],
    }
    record("spread/tree", median(rounds), bound_s, "bound of a pipelined tree", "s", detail)


async def spread(folder: Path) -> tuple[float, float]:
    """Seconds, and how many times the origin sent the version."""
    file = folder / "weights.bin"
    file.write_bytes(secrets.token_bytes(NUM_BYTES))
    async with AsyncExitStack() as stack:
        url, root, _ = await asyncio.to_thread(coordinator, stack, folder)
        origin = await _narrow(stack, url)
        clients: dict[Path, subprocess.Popen[bytes]] = {}
        for number in range(FAN_OUT):
            relay = await _narrow(stack, await asyncio.to_thread(_relay, stack, folder / f"relay-{number}", origin.url))
            for child in range(FAN_OUT):
                at = folder / f"client-{number}-{child}"
                words = [sys.executable, "-m", "benchmarks.broadcast_client", str(at), origin.url, relay.url]
                clients[at] = stack.enter_context(process(words))
                await asyncio.to_thread(wait_for, (at / "ready").exists)
        await asyncio.sleep(1.0)
        await publish_file(url, (root / "tokens" / "trainer").read_text().strip(), file.read_bytes())
        started_s = time.perf_counter()
        codes = await asyncio.gather(*(asyncio.to_thread(client.wait) for client in clients.values()))
        took_s = time.perf_counter() - started_s
        assert not any(codes), f"clients ended with codes {codes}"
        for at in clients:
            check(at / WEIGHTS, file)
        return took_s, origin.num_bytes / NUM_BYTES


async def _narrow(stack: AsyncExitStack, url: str) -> ShapingProxy:
    """A proxy before a server."""
    proxy = ShapingProxy(server=url, link=Link(RATE), client=Link(), latency_s=LATENCY_S, loss=0.0)
    return await stack.enter_async_context(shaping(proxy))


def _relay(stack: AsyncExitStack, folder: Path, upstream: str) -> str:
    port = free_port()
    words = [*FARFLUNG, "relay", "--upstream", upstream, f"--relay.port={port}", f"--relay.folder={folder}"]
    stack.enter_context(process(words))
    wait_for(lambda: is_listening(port))
    return f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    run()
