"""Would `iroh` do as a way to relays without open ports? Chunks of 8 MiB from one process to another on loopback.

peer_transport/iroh            MB/s of `iroh` as it comes; the peer is a relay of ours and our client, over HTTP
peer_transport/iroh-repaired   the same with the byte-by-byte copy of its Python binding replaced

QUIC is encrypted and HTTP is not, so the HTTP figure is a ceiling, not a like for like. `iroh` has an environment of
its own in `FARFLUNG_BENCH_IROH` (default `benchmarks/.cache/iroh`): python -m venv IT && IT/bin/pip install iroh==1.2.0
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import record
from farflung.broadcast.servers import Servers

sys.path.append(str(Path(__file__).parents[1] / "tests" / "harness"))
from relay_harness import Origin, relaying, serving, version

FOLDER = Path(os.environ.get("FARFLUNG_BENCH_IROH", Path(__file__).with_name(".cache") / "iroh"))
CHILD = Path(__file__).with_name("iroh_child.py")
CHUNK_BYTES, NUM_CHUNKS, NUM_CONCURRENT = 8 << 20, 24, 4
NUM_CHUNKS_SLOW = 2
"""As it comes, a chunk takes seconds."""
NUM_ROUNDS = 3
MEGABYTE = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Bytes from one process to another."""

    rate: float
    """MB/s."""
    cpu_ms_per_megabyte: float
    """Of both ends."""


def run() -> None:
    if not (FOLDER / "bin/python").exists():
        print(f"no iroh: python -m venv {FOLDER} && {FOLDER}/bin/pip install iroh==1.2.0")
        return
    rounds = [(over_iroh(False, NUM_CHUNKS_SLOW), over_iroh(True, NUM_CHUNKS), over_http()) for _ in range(NUM_ROUNDS)]
    plain, repaired, http = zip(*rounds, strict=True)
    for name, ours in (("peer_transport/iroh", plain), ("peer_transport/iroh-repaired", repaired)):
        detail = {
            "each round, MB/s": [round(each.rate, 1) for each in ours],
            "CPU-ms a MB, both ends": round(_middle([each.cpu_ms_per_megabyte for each in ours]), 2),
            "HTTP, CPU-ms a MB, both ends": round(_middle([each.cpu_ms_per_megabyte for each in http]), 2),
            "chunks at a time": NUM_CONCURRENT,
        }
        rate, peer_rate = (_middle([each.rate for each in side]) for side in (ours, http))
        record(name, rate, peer_rate, "HTTP, our relay and client", "MB/s", {"iroh": iroh_version(), **detail})
        print(f"{name}: {rate:.1f} MB/s, HTTP {peer_rate:.0f}; {detail}")


def over_iroh(is_repaired: bool, num_chunks: int) -> Transfer:
    common = [str(CHUNK_BYTES), str(int(is_repaired))]
    with _child("serve", *common) as server:
        ticket = _line(server)["ticket"]
        with _child("fetch", *common, ticket, str(num_chunks), str(NUM_CONCURRENT)) as client:
            got = _line(client)
        served = _line(server)
    megabytes = num_chunks * CHUNK_BYTES / MEGABYTE
    return Transfer(
        rate=megabytes / got["took_s"], cpu_ms_per_megabyte=1000 * (got["cpu_s"] + served["cpu_s"]) / megabytes
    )


def over_http() -> Transfer:
    """A relay of ours in a process of its own, our client in this one."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.peer_transport"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        said = _line(server)
        started_s, started_cpu_s = time.monotonic(), time.process_time()
        asyncio.run(_fetch(said["url"], said["chunks"]))
        took_s, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
        assert server.stdin is not None
        server.stdin.close()
        cpu_s += _line(server)["cpu_s"]
    megabytes = NUM_CHUNKS * CHUNK_BYTES / MEGABYTE
    return Transfer(rate=megabytes / took_s, cpu_ms_per_megabyte=1000 * cpu_s / megabytes)


async def _fetch(url: str, chunks: Sequence[str]) -> None:
    gate = asyncio.Semaphore(NUM_CONCURRENT)
    async with Servers() as servers:

        async def get(sha256: str) -> None:
            async with gate:
                await servers.chunk(url, sha256, CHUNK_BYTES)

        await asyncio.gather(*(get(sha256) for sha256 in chunks))


async def _serve() -> None:
    """The process with the relay: says where it is, and when its input ends, what it used."""
    async with serving(Origin()) as origin:
        manifest = origin.publish(version(0, num_chunks=NUM_CHUNKS, chunk_bytes=CHUNK_BYTES))
        chunks = [chunk.sha256 for chunk in manifest.files[0].chunks]
        with tempfile.TemporaryDirectory(prefix="peer-transport-") as folder:
            async with relaying(Path(folder), origin.url) as url:
                await _fetch(url, chunks)  # it has them all now
                started_cpu_s = time.process_time()
                print(json.dumps({"url": url, "chunks": chunks}), flush=True)
                await asyncio.to_thread(sys.stdin.read)
                print(json.dumps({"cpu_s": time.process_time() - started_cpu_s}), flush=True)


def iroh_version() -> str:
    words = [FOLDER / "bin/python", "-c", "from importlib.metadata import version; print(version('iroh'))"]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout.strip()


def _child(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([str(FOLDER / "bin/python"), str(CHILD), *words], stdout=subprocess.PIPE, text=True)


def _line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    said: dict[str, Any] = json.loads(process.stdout.readline())
    return said


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    asyncio.run(_serve())
