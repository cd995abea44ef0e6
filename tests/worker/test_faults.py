"""What a worker does not survive, how that is told, and that it neither hangs nor grows."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from farflung.api.client import CoordinatorClient
from farflung.broadcast import pool_sources
from farflung.broadcast.fetch import ChunkCache
from farflung.engine.torch_engine import TorchEngine
from farflung.wire.canonical import sha256_hex
from farflung.wire.node import Role
from farflung.wire.verdict import RejectReason
from farflung.worker import service
from farflung.worker.config import WorkerConfig
from running_pool import Crew, coordinator, crew, publish_version
from tiny_pool import FAST, pool_spec, tiny_policy

POOL = pool_spec()


async def run(url: str, stop: asyncio.Event) -> None:
    settings = WorkerConfig.model_validate({**FAST, "node": "sampler", "max_batch_rows": 16})
    await asyncio.wait_for(service.run(settings, url=url, stop=stop), 60)


async def submissions(made: Crew, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            held = [assignment.submission.digest() for assignment in found]
            found += await made.validator.assignments(8, wait_s=0.5, held=held)
    return found


async def test_H4_an_engine_that_raises_once_costs_a_restart_and_no_slot(  # noqa: N802
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process ends with the engine's error, so that whoever supervises it starts it again."""
    generate, num_calls = TorchEngine.generate, 0

    def breaks(*args: Any, **rest: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return generate(*args, **rest)

    monkeypatch.setattr(TorchEngine, "generate", breaks)
    async with (
        coordinator(tmp_path, POOL) as url,
        crew(url, POOL) as made,
        CoordinatorClient(url, node="trainer", role=Role.TRAINER) as trainer,
    ):
        await publish_version(trainer, POOL, tiny_policy())
        with pytest.raises(RuntimeError, match="illegal memory access"):
            await run(url, asyncio.Event())
        stop = asyncio.Event()
        again = asyncio.create_task(run(url, stop))
        first, *_ = await submissions(made, 2)
        stop.set()
        await again
    assert (first.lease.slot, first.lease.attempt) == (0, 0), "the same lease, at once"


async def test_H4_a_background_task_that_fails_ends_the_worker_with_its_error(  # noqa: N802
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch for new versions runs beside the loop, and its error is not swallowed there."""
    latest_manifest, num_calls = CoordinatorClient.latest_manifest, 0

    async def breaks(self: CoordinatorClient, newer_than: int = -1, wait_s: float = 0.0) -> Any:
        nonlocal num_calls
        num_calls += self.node == "sampler"
        if self.node == "sampler" and num_calls > 1:
            raise RuntimeError("a bug in the watch")
        return await latest_manifest(self, newer_than, wait_s)

    monkeypatch.setattr(CoordinatorClient, "latest_manifest", breaks)
    pool = pool_spec(max_outstanding_groups=4)
    async with (
        coordinator(tmp_path, pool) as url,
        CoordinatorClient(url, node="trainer", role=Role.TRAINER) as trainer,
    ):
        await publish_version(trainer, pool, tiny_policy())
        with pytest.raises(RuntimeError, match="a bug in the watch"):
            await run(url, asyncio.Event())


async def test_M2_versions_that_come_and_go_leave_no_files_open_and_no_chunks_behind(  # noqa: N802
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches: list[ChunkCache] = []

    class Cache(ChunkCache):
        def __init__(self, max_bytes: int) -> None:
            super().__init__(max_bytes)
            caches.append(self)

    monkeypatch.setattr(service, "ChunkCache", Cache)
    monkeypatch.setattr(service, "CHUNK_CACHE_BYTES", 1 << 16)
    monkeypatch.setattr(pool_sources, "REFRESH_S", 0.0)  # all connections that there will ever be are there early
    async with (
        coordinator(tmp_path, POOL) as url,
        crew(url, POOL) as made,
        CoordinatorClient(url, node="trainer", role=Role.TRAINER) as trainer,
    ):
        stop = asyncio.Event()
        working = asyncio.create_task(run(url, stop))
        num_files: list[int] = []
        for seed in range(8):
            await publish_version(trainer, POOL, tiny_policy(seed))
            version = -1
            while version < seed:
                for assignment in await submissions(made, 1):
                    version = assignment.submission.policy_version
                    await made.judge(assignment.submission, RejectReason.SCHEMA)
            num_files.append(len(os.listdir("/proc/self/fd")))
        stop.set()
        await working
    assert max(num_files[4:]) <= max(num_files[:4]) + 2, num_files  # connections come and go; one a version would be 4
    assert len(caches) == 1
    assert caches[0].num_bytes <= 1 << 16


def test_the_cache_of_chunks_keeps_within_its_size_whatever_comes() -> None:
    cache = ChunkCache(1000)
    pieces = {sha256_hex(bytes([number]) * 300): bytes([number]) * 300 for number in range(50)}

    for sha256, data in pieces.items():
        cache.put(sha256, data)
        assert cache.num_bytes <= 1000
    assert sha256 in cache, "the newest is kept"
