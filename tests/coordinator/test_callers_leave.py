"""A caller that leaves in the middle of an answer is no fault of ours, and leaves no traceback in the log."""

import asyncio
import logging

import pytest
from aiohttp import web

from farflung.api.server import exchange

ANSWER_BYTES = 20_000_000


@pytest.mark.parametrize("wait_s", [0.02, 0.2], ids=["before the answer", "in the middle of it"])
async def test_a_caller_that_leaves_is_noted_in_one_line(wait_s: float, caplog: pytest.LogCaptureFixture) -> None:
    async def download(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        return await exchange.send_bytes(request, bytes(ANSWER_BYTES))

    app = web.Application(middlewares=[exchange.boundary])
    app.router.add_get("/bytes", download)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with caplog.at_level(logging.INFO):
        _, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
        writer.write(b"GET /bytes HTTP/1.1\r\nHost: here\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(wait_s)
        writer.transport.abort()
        for _ in range(100):
            if "caller went away" in caplog.text:
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)
    await runner.cleanup()
    assert "caller went away" in caplog.text
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
