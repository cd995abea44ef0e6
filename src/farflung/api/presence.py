"""Signs of life in the background, for as long as a role runs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from farflung.api.client import CoordinatorClient
from farflung.errors import FarflungError
from farflung.telemetry.heartbeat import Vitals

logger = logging.getLogger(__name__)


@asynccontextmanager
async def heartbeats(client: CoordinatorClient, vitals: Vitals, every_s: float) -> AsyncIterator[None]:
    """Send what `vitals` says every `every_s` seconds; a coordinator that is away is no concern of this loop."""
    task = asyncio.create_task(_beat(client, vitals, every_s))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await _send(client, vitals)


async def _beat(client: CoordinatorClient, vitals: Vitals, every_s: float) -> None:
    while True:
        await _send(client, vitals)
        await asyncio.sleep(every_s)


async def _send(client: CoordinatorClient, vitals: Vitals) -> None:
    try:
        await client.heartbeat(vitals.heartbeat())
    except FarflungError as error:
        logger.info("heartbeat: %s", error)
