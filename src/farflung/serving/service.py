"""The server as a process: load, listen, stop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from farflung.errors import OurFault
from farflung.serving.app import Server
from farflung.serving.config import ServeConfig
from farflung.serving.loop import EngineLoop
from farflung.serving.model import load_served
from farflung.serving.recording import Recorder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listening:
    """A server that answers."""

    url: str
    """Base URL of the API."""
    model: str
    recorder: Recorder | None
    """Where it records."""


async def run(
    path: Path,
    config: ServeConfig,
    *,
    adapter: Path | None = None,
    stop: asyncio.Event,
    on_listening: Callable[[str, str], None],
) -> None:
    """Serve until `stop`.

    Args:
        adapter: folder of a LoRA adapter that goes beside the model.
        on_listening: called with the base URL and the model's name.

    Raises:
        UserError: no model there.
        OurFault: the address is taken.
    """
    async with listening(path, config, adapter=adapter) as server:
        on_listening(server.url, server.model)
        await stop.wait()


@asynccontextmanager
async def listening(
    path: Path, config: ServeConfig, *, adapter: Path | None = None, is_recording: bool = False
) -> AsyncIterator[Listening]:
    """A server for as long as the context lasts.

    Args:
        is_recording: answers are recorded, and only keys that the recorder gave out are answered.

    Raises:
        UserError: no model there.
        OurFault: the address is taken.
    """
    model, batch = await asyncio.to_thread(load_served, path, config, adapter)
    recorder = Recorder(model.tokenizer) if is_recording else None
    engine = EngineLoop(batch, max_waiting=config.max_waiting)
    app = Server(config, model, engine, recorder).app()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, config.host, config.port)
        try:
            await site.start()
        except OSError as error:
            raise OurFault(
                f"cannot listen on {config.host}:{config.port}: {error.strerror or error}; choose another --serve.port"
            ) from error
        port = runner.addresses[0][1]
        host = "127.0.0.1" if config.host == "0.0.0.0" else config.host  # noqa: S104 - compared, not bound
        yield Listening(url=f"http://{host}:{port}/v1", model=model.name, recorder=recorder)
    finally:
        await runner.cleanup()
        await engine.close()
