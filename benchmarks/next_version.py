"""The next version of 400 MB of weights to nodes that have the one before: ours as a patch, `shardcast` as a file.

    FARFLUNG_BENCH_SHARDCAST=PYTHON python -m benchmarks next_version      PYTHON has shardcast installed

next-version/<n>-clients/wall, cpu      s and CPU-s from two versions in the trainer's memory until the last of n
                                        clients has the next one whole, its hash checked

What a pool does version after version, beside the only way that the peer knows. Of the weights 0.33 % changed by one
step of bf16, as in a step of SmolLM2-135M at a learning rate of 1e-6 (`patches`). Counted are building the patch,
publishing it to a real coordinator, two relays, and applying it. Our clients end with the weights in memory, as workers
do, the peer's with a file.
"""

import asyncio
import os
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from benchmarks.broadcast import (
    FARFLUNG,
    NUM_ROUNDS,
    TRAINER,
    WEIGHTS,
    Cost,
    coordinator,
    free_port,
    is_listening,
    measured,
    process,
    temporary_file,
    theirs_that_ended,
    wait_for,
)
from benchmarks.record import record
from farflung.api.client import CoordinatorClient
from farflung.broadcast.publish import PatchOffer, PreparedPolicy, prepare, publish
from farflung.identity.signing import sign
from farflung.sharding.patch_build import build_patch
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.node import Role

NUM_TENSORS, NUM_ELEMENTS = 40, 5_000_000
DENSITY = 0.0033


def run() -> None:
    peer = os.environ.get("FARFLUNG_BENCH_SHARDCAST", "")
    versions = _versions()
    for num_clients in (1, 8):
        mine: list[Cost] = []
        peers: list[Cost] = []
        with temporary_file() as file:
            for number in range(NUM_ROUNDS if num_clients == 1 else 1):
                mine.append(ours(file.with_name(f"ours-{number}"), versions, num_clients))
                print("ours", num_clients, mine[-1], flush=True)
                if peer:
                    cost, _ = theirs_that_ended(file.with_name(f"theirs-{number}"), file, num_clients, peer)
                    peers.append(cost)
                    print("shardcast", num_clients, cost, flush=True)
        _record(num_clients, mine, peers)


def _record(num_clients: int, ours: list[Cost], theirs: list[Cost]) -> None:
    for what, unit, field in (("wall", "s", "wall_s"), ("cpu", "CPU-s", "cpu_s")):
        mine, peers = ([getattr(cost, field) for cost in side] for side in (ours, theirs))
        detail: dict[str, Any] = {"rounds": {"ours": mine, "peer": peers}, "load": os.getloadavg()[0]}
        name, peer = f"next-version/{num_clients}-clients/{what}", "shardcast 0.3.2" if peers else None
        record(name, median(mine), median(peers) if peers else None, peer, unit, detail)


def _versions() -> tuple[bytes, bytes]:
    generator = np.random.default_rng(0)
    before, after = {}, {}
    for index in range(NUM_TENSORS):
        weights = torch.from_numpy(generator.standard_normal(NUM_ELEMENTS, dtype=np.float32) * 0.02).to(torch.bfloat16)
        moved = weights.view(torch.int16).clone()
        where = torch.from_numpy(np.unique(generator.integers(0, NUM_ELEMENTS, int(DENSITY * NUM_ELEMENTS))))
        moved[where] += torch.from_numpy(generator.choice(np.array([-1, 1], np.int16), len(where)))
        before[f"layers.{index}.weight"], after[f"layers.{index}.weight"] = weights, moved.view(torch.bfloat16)
    return save(before), save(after)


def ours(folder: Path, versions: tuple[bytes, bytes], num_clients: int, num_relays: int = 2) -> Cost:
    old, new = versions
    with ExitStack() as stack:
        url, root, started = coordinator(stack, folder)
        token = (root / "tokens" / "trainer").read_text().strip()
        first = asyncio.run(_publish(url, token, old, None, None))
        roles, relays = [started], []
        for number in range(num_relays):
            relay = free_port()
            words = ["relay", "--upstream", url, f"--relay.port={relay}", f"--relay.folder={folder / f'r{number}'}"]
            roles.append(stack.enter_context(process([*FARFLUNG, *words])))
            wait_for(lambda relay=relay: is_listening(relay))  # type: ignore[misc]
            relays.append(f"http://127.0.0.1:{relay}")
        clients = []
        for number in range(num_clients):
            at = folder / f"client-{number}"
            words = ["-m", "benchmarks.broadcast_client", "--follow", str(at), url, *relays]
            clients.append(stack.enter_context(process([sys.executable, *words])))
            wait_for((at / "ready").exists)
        cost = measured(
            [*roles, *clients], clients, lambda: asyncio.run(_publish(url, token, new, old, first)) and None
        )
    shutil.rmtree(folder)
    return cost


async def _publish(url: str, token: str, data: bytes, before: bytes | None, last: Manifest | None) -> Manifest:
    """The trainer's part of a version; built here where there is one before it."""
    patch = None
    if before is not None and last is not None:
        made = build_patch(before, data)
        assert made is not None, "both files have the same tensors"
        base_sha256 = next(file.sha256 for file in last.files if file.name == WEIGHTS)
        patch = PatchOffer(file=WEIGHTS, base_sha256=base_sha256, data=made, is_alone=True)
    async with CoordinatorClient(url, node="trainer", role=Role.TRAINER, token=token) as client:
        now_ms = int(time.time() * 1000)
        version = 0 if last is None else 1
        prepared = prepare(
            {WEIGHTS: data},
            tensors=(),
            pool_digest=(await client.pool()).digest(),
            policy_version=version,
            optimizer_step=version,
            published_at_ms=now_ms,
            expires_at_ms=now_ms + 3_600_000,
            previous_digest="" if last is None else last.digest(),
            patch=patch,
        )
        signed = sign(prepared.manifest, TRAINER)

        async def put_manifest(manifest: Manifest) -> None:
            await client.publish(Publication(manifest=manifest))

        signed_policy = PreparedPolicy(manifest=signed, chunks=prepared.chunks)
        await publish(signed_policy, client.put_chunk, put_manifest)
        return signed
