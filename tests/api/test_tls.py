"""TLS by files: who is believed, and what is said of files that will not do."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from certificates import Certificate, make_certificate
from farflung.api.client import CoordinatorClient
from farflung.api.tls import client_context, server_context
from farflung.broadcast.servers import Servers
from farflung.errors import Transient, UserError
from farflung.wire.node import Role

CHUNK = b"chunk" * 1000


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


@pytest.fixture
async def url(certificate: Certificate) -> AsyncIterator[str]:
    """A server that has one chunk."""

    async def chunk(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=CHUNK)

    app = web.Application()
    app.router.add_get("/v1/chunks/{sha256}", chunk)
    async with TestServer(app, scheme="https") as server:
        await server.close()
        server = TestServer(app, scheme="https")
        await server.start_server(ssl=server_context(certificate.certificate, certificate.key, "relay"))
        yield str(server.make_url("")).rstrip("/")
        await server.close()


async def fetched(url: str, tls: ssl.SSLContext | None) -> bytes | bytearray:
    async with Servers(tls=tls) as servers:
        return await servers.chunk(url, "0" * 64, len(CHUNK))


async def test_a_server_is_believed_by_the_authority_of_the_file(url: str, certificate: Certificate) -> None:
    assert await fetched(url, client_context(certificate.certificate)) == CHUNK


async def test_no_other_server_is_believed(url: str, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other")
    for tls in (None, client_context(other.certificate)):
        with pytest.raises(Transient, match=r"(?i)certificate"):
            await fetched(url, tls)
        async with CoordinatorClient(url, node="w", role=Role.WORKER, tls=tls) as client:
            with pytest.raises(Transient, match=r"(?i)certificate"):
                await client.get_chunk("0" * 64, len(CHUNK))


async def test_a_certificate_for_another_address_is_not_believed(tmp_path: Path) -> None:
    foreign = make_certificate(tmp_path, "foreign", address="192.0.2.1")
    server = TestServer(web.Application(), scheme="https")
    await server.start_server(ssl=server_context(foreign.certificate, foreign.key, "relay"))
    with pytest.raises(Transient, match=r"(?i)certificate"):
        await fetched(str(server.make_url("")), client_context(foreign.certificate))
    await server.close()


async def test_plain_http_gets_nothing_from_it(url: str) -> None:
    with pytest.raises(Transient):
        await asyncio.wait_for(fetched(url.replace("https", "http"), None), 10)


def test_files_that_will_not_do_are_told_of(certificate: Certificate, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other")
    (tmp_path / "text").write_text("no certificate")
    for pair in ((str(tmp_path / "absent"), other.key), (certificate.certificate, other.key)):
        with pytest.raises(UserError, match=r"coordinator\.tls_certificate .* belong together"):
            server_context(*pair, "coordinator")
    for path in ("absent", "text"):
        with pytest.raises(UserError, match=r"run\.ca_file"):
            client_context(str(tmp_path / path))
    assert server_context("", "", "relay") is None
    assert client_context("") is None
