"""SIGKILL in the middle of a download, again and again: what was written stays, and the file is whole in the end."""

import asyncio
import sys
from pathlib import Path

from aiohttp import web

import landing_child
from farflung.wire.manifest import Manifest
from relay_harness import Origin, serving, version

NUM_CHUNKS = 24
MAX_LOST = 3
"""Chunks that may have been on their way to the disk when a process died: two requests, and one just answered."""


async def fetch_until_killed(manifest_path: Path, folder: Path, url: str, num_chunks: int | None) -> list[str]:
    """Start a client and kill it once so many chunks came (None: let it finish); what it said came."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, landing_child.__file__, str(manifest_path), str(folder), url, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    came = []
    while line := await child.stdout.readline():
        came.append(line.decode().strip())
        if len(came) == num_chunks:
            child.kill()
            break
    code = await child.wait()
    assert (code == 0) == (num_chunks is None)
    return came


def written(manifest: Manifest, path: Path) -> Path:
    path.write_bytes(manifest.to_bytes())
    return path


async def test_killed_at_several_points_it_goes_on_with_what_is_on_disk(tmp_path: Path) -> None:
    async with serving(Origin()) as origin:

        async def answer(sha256: str) -> web.StreamResponse:
            await asyncio.sleep(0.01)
            return web.Response(body=origin.chunks[sha256])

        origin.answer = answer
        manifest = origin.publish(version(0, num_chunks=NUM_CHUNKS))
        manifest_path = written(manifest, tmp_path / "manifest.json")
        folder, asked = tmp_path / "landed", 0
        for kill_after in (1, 5, 9):
            before = asked
            await fetch_until_killed(manifest_path, folder, origin.url, kill_after)
            asked = origin.asked.total()
            assert asked - before >= kill_after
            assert not (folder / "model.safetensors").exists()  # a name means a whole file
        await fetch_until_killed(manifest_path, folder, origin.url, None)
        weights = b"".join(origin.chunks[chunk.sha256] for chunk in manifest.files[0].chunks)
        assert (folder / "model.safetensors").read_bytes() == weights
        assert origin.asked.total() <= NUM_CHUNKS + 3 * MAX_LOST
        asked = origin.asked.total()
        assert await fetch_until_killed(manifest_path, folder, origin.url, None) == []
        assert origin.asked.total() == asked
