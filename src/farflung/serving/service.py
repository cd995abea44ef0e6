"""The server as a process: load, listen, stop."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from farflung.errors import OurFault
from farflung.serving.app import Server
from farflung.serving.config import ServeConfig
from farflung.serving.loop import EngineLoop
from farflung.serving.model import load_served

logger = logging.getLogger(__name__)


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
    model, batch = await asyncio.to_thread(load_served, path, config, adapter)
    engine = EngineLoop(batch, max_waiting=config.max_waiting)
    runner = web.AppRunner(Server(config, model, engine).app(), access_log=None, shutdown_timeout=2.0)
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
        on_listening(f"http://{host}:{port}/v1", model.name)
        await stop.wait()
    finally:
        await runner.cleanup()
        await engine.close()
