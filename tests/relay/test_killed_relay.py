"""SIGKILL for a relay that is still fetching: started again in its folder it goes on, and passes on nothing false."""

import asyncio
import signal
from pathlib import Path

from aiohttp import web

from farflung.broadcast.landing import land
from farflung.broadcast.servers import Servers
from farflung.cli.ports import usable_port
from farflung.wire.manifest import Manifest
from processes import Process
from relay_harness import TRAINER, Origin, serving, version

NUM_CHUNKS = 30
PATIENCE_S = 60
WRITING = 9
"""Chunks that were asked for and need not be on disk when it is killed: as many as it fetches at a time, and one."""


def num_stored(folder: Path) -> int:
    return sum(1 for path in folder.glob("??/*") if len(path.name) == 64)


async def until_stored(folder: Path, at_least: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while num_stored(folder) < at_least:  # noqa: ASYNC110 (another process writes there)
            await asyncio.sleep(0.01)


async def landed(url: str, manifest: Manifest, folder: Path) -> Path:
    async with Servers() as servers:
        paths = await land(manifest, folder, lambda sha256, size: servers.chunk(url, sha256, size))
    return paths["model.safetensors"]


async def test_a_killed_relay_goes_on_with_its_folder(tmp_path: Path) -> None:
    async with serving(Origin()) as origin:
        manifest = origin.publish(version(0, num_chunks=NUM_CHUNKS))

        async def answer(sha256: str) -> web.StreamResponse:
            await asyncio.sleep(0.05)
            return web.Response(body=origin.chunks[sha256])

        origin.answer = answer
        folder, port = tmp_path / "relay", usable_port("127.0.0.1", 0)
        words = [
            "relay", "--upstream", origin.url, "--relay.folder", str(folder), "--relay.port", str(port),
            "--relay.trainer", TRAINER.address, "--relay.max_concurrent", "8",
        ]  # fmt: skip
        for at_least in (1, 12):
            relay = Process(words, tmp_path / "log")
            try:
                await until_stored(folder, at_least)
            finally:
                relay.send(signal.SIGKILL)
                relay.kill()
        relay = Process(words, tmp_path / "log")
        try:
            await until_stored(folder, NUM_CHUNKS)
            path = await landed(f"http://127.0.0.1:{port}", manifest, tmp_path / "client")
        finally:
            relay.kill()
        assert path.read_bytes() == b"".join(origin.chunks[chunk.sha256] for chunk in manifest.files[0].chunks)
        assert origin.asked.total() <= NUM_CHUNKS + 2 * WRITING
