"""A crowd that comes back at once: a real coordinator, killed and started again under clients that wait for a version.

Every client is `CoordinatorClient` behind a role's own `Patience`, with a connection of its own: it takes the newest
manifest and one chunk of it, then waits for the next version. Run by `benchmarks.network_faults`.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.process_cpu import tree_cpu_s
from benchmarks.process_memory import resident_bytes
from farflung.api.client import CoordinatorClient
from farflung.api.patience import Patience
from farflung.broadcast.publish import prepare
from farflung.cli.ports import usable_port
from farflung.errors import Transient
from farflung.identity.keys import key_from_bytes
from farflung.identity.signing import sign
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.node import Role

sys.path.append(str(Path(__file__).parents[1] / "tests" / "harness"))
from processes import Process

TRAINER = key_from_bytes(b"\x07" * 32)
CHUNK_BYTES, NUM_CHUNKS = 1 << 18, 8
NAME = "crowd"
POLL_S, PATIENCE_S, LOOK_S = 30.0, 120.0, 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Crowded:
    """What a crowd met."""

    num_clients: int
    arrival_s: float
    """From nobody to everybody having manifest and chunk."""
    return_s: float
    """From the restarted coordinator listening to everybody having the next version's."""
    longest_answer_s: float
    """To one more client, who asks for the state of the pool all the while (without the time nobody listened)."""
    peak_bytes: int
    """Resident memory of the coordinator."""
    cpu_s: float
    """Of the restarted coordinator, from its start on."""


@dataclass
class Origin:
    """The coordinator process."""

    folder: Path
    port: int
    process: Process | None = None
    latencies_s: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> float:
        """Returns when it answers: that time."""
        words = [
            "coordinator", "demo", "--run.name", NAME, "--run.dir", str(self.folder),
            "--coordinator.port", str(self.port),
        ]  # fmt: skip
        self.process = Process(words, self.folder / "log")
        async with CoordinatorClient(self.url, node="first", role=Role.WORKER) as client:
            while True:
                try:
                    await client.pool()
                except Transient:
                    await asyncio.sleep(0.02)
                else:
                    return time.monotonic()

    async def publish(self, version: int, previous: Manifest | None) -> Manifest:
        token = (self.folder / NAME / "tokens" / "trainer").read_text(encoding="utf-8").strip()
        async with CoordinatorClient(self.url, node="trainer", role=Role.TRAINER, token=token) as client:
            now_ms = int(time.time() * 1000)
            prepared = prepare(
                {"model.safetensors": os.urandom(CHUNK_BYTES * NUM_CHUNKS)},
                tensors=(),
                pool_digest=(await client.pool()).digest(),
                policy_version=version,
                optimizer_step=version,
                published_at_ms=now_ms,
                expires_at_ms=now_ms + 10**8,
                previous_digest="" if previous is None else previous.digest(),
                chunk_bytes=CHUNK_BYTES,
            )
            for sha256, data in prepared.chunks.items():
                await client.put_chunk(sha256, bytes(data))
            manifest = sign(prepared.manifest, TRAINER)
            await client.publish(Publication(manifest=manifest))
            return manifest

    async def look(self) -> None:
        """Ask again and again, as somebody who is no part of the crowd."""
        async with CoordinatorClient(self.url, node="onlooker", role=Role.WORKER) as client:
            while True:
                started_s = time.monotonic()
                try:
                    await client.status()
                except Transient:
                    pass  # nobody listens: the coordinator was killed
                else:
                    self.latencies_s.append(time.monotonic() - started_s)
                if self.process is not None:
                    self.peak_bytes = max(self.peak_bytes, resident_bytes(self.process.pid))
                await asyncio.sleep(LOOK_S)


async def _take(client: CoordinatorClient, patience: Patience, number: int, newer_than: int) -> None:
    """Wait for a version, and take one chunk of it."""
    manifest = None
    while manifest is None:
        manifest = await patience(lambda: client.latest_manifest(newer_than, POLL_S))
    chunks = manifest.files[0].chunks
    chunk = chunks[number % len(chunks)]
    await patience(lambda: client.get_chunk(chunk.sha256, chunk.num_bytes))


async def crowd(folder: Path, num_clients: int) -> Crowded:
    """All of them at once; killed; all of them again."""
    origin = Origin(folder, usable_port("127.0.0.1", 0))
    patience = Patience(asyncio.Event(), PATIENCE_S)
    await origin.start()
    try:
        first = await origin.publish(0, None)
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(CoordinatorClient(origin.url, node=f"n{number}", role=Role.WORKER))
                for number in range(num_clients)
            ]
            looking = asyncio.create_task(origin.look())
            started_s = time.monotonic()
            await _all_take(clients, patience, -1)
            arrival_s = time.monotonic() - started_s
            waiting = asyncio.create_task(_all_take(clients, patience, 0))
            await asyncio.sleep(1.0)  # every long poll is open
            assert origin.process is not None
            origin.process.kill()
            listening_s = await origin.start()
            await origin.publish(1, first)
            await waiting
            return_s = time.monotonic() - listening_s
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        return Crowded(
            num_clients=num_clients,
            arrival_s=arrival_s,
            return_s=return_s,
            longest_answer_s=max(origin.latencies_s),
            peak_bytes=origin.peak_bytes,
            cpu_s=tree_cpu_s(origin.process.pid),
        )
    finally:
        if origin.process is not None:
            origin.process.kill()


async def _all_take(clients: Sequence[CoordinatorClient], patience: Patience, newer_than: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(_take(client, patience, number, newer_than))
