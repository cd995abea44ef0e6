"""A relay as a process that registers with a coordinator and flips one bit of every chunk but the small ones.

python lying_relay.py COORDINATOR_URL
"""

import asyncio
import sys

import aiohttp
from aiohttp import web

from farflung.api.client import CoordinatorClient
from farflung.errors import FarflungError
from farflung.wire.node import Role
from farflung.wire.relay import RelayOffer

NODE = "mallory"
SMALL_BYTES = 2000
"""Chunks up to here are passed on as they are: the coordinator looks at the smallest one."""


async def lie(coordinator: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        CoordinatorClient(coordinator, node=NODE, role=Role.RELAY) as client,
    ):

        async def passed_on(request: web.Request) -> web.StreamResponse:
            async with session.get(coordinator + request.path_qs) as answer:
                data = bytearray(await answer.read())
                if request.path.startswith("/v1/chunks/") and answer.status == 200 and len(data) > SMALL_BYTES:
                    data[len(data) // 2] ^= 1
                return web.Response(status=answer.status, body=bytes(data))

        app = web.Application()
        app.router.add_get("/{path:.*}", passed_on)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        while not client.is_finished:
            try:
                manifest = await client.latest_manifest()
                version = -1 if manifest is None else manifest.policy_version
                offer = RelayOffer(relay=NODE, url=url, upload_bytes_per_s=100_000_000, policy_version=version)
                await client.offer_relay(offer)
            except FarflungError as error:
                sys.stdout.write(f"{error}\n")
            await asyncio.sleep(0.5)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(lie(sys.argv[1]))
