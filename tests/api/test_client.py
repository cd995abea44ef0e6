"""The client against servers that misbehave; the honest conversation is tested in tests/coordinator."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from farflung.api.client import CoordinatorClient
from farflung.api.errors import RefusalReason, Refused
from farflung.api.records import Refusal
from farflung.api.routes import FINISHED_HEADER, MAX_WAIT_S
from farflung.errors import PeerFault, Transient
from farflung.wire.canonical import sha256_hex
from farflung.wire.node import PoolStatus, Role
from farflung.wire.verdict import EvidenceBundle, Outcome, Verdict

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[CoordinatorClient]:
    """A client whose coordinator gives this answer to everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with CoordinatorClient(f"http://127.0.0.1:{port}/", node="n", role=Role.WORKER, timeout_s=0.5) as client:
        yield client
    await runner.cleanup()


def always(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=headers)

    return answer


async def test_a_refusal_carries_reason_and_sentence() -> None:
    body = Refusal(reason=RefusalReason.NOT_FOUND, message="chunk x is gone").to_bytes()
    async with server(always(404, body)) as client:
        with pytest.raises(Refused) as caught:
            await client.pool()
    assert (caught.value.reason, str(caught.value)) == ("not_found", "chunk x is gone [not_found]")


async def test_a_coordinator_that_is_away_is_passing_and_told_in_a_few_words() -> None:
    async with CoordinatorClient("http://127.0.0.1:1", node="n", role=Role.WORKER) as client:
        with pytest.raises(Transient) as caught:
            await client.pool()
    assert str(caught.value) == "coordinator at http://127.0.0.1:1: GET /v1/pool failed: connection refused"


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_trouble_of_the_coordinator_is_passing(status: int) -> None:
    async with server(always(status, b"<html>proxy says no</html>")) as client:
        with pytest.raises(Transient, match=str(status)):
            await client.pool()


@pytest.mark.parametrize("status", [400, 404, 418])
async def test_another_program_on_the_port_is_recognised(status: int) -> None:
    async with server(always(status, b"<html>not here</html>")) as client:
        with pytest.raises(PeerFault, match="not a refusal of a farflung coordinator"):
            await client.pool()


async def test_redirects_are_not_followed() -> None:
    async with server(always(302, b"", Location="http://127.0.0.1:9/")) as client:
        with pytest.raises(PeerFault):
            await client.pool()


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"null"])
async def test_an_answer_that_is_no_record_is_the_servers_fault(body: bytes) -> None:
    async with server(always(200, body)) as client:
        with pytest.raises(PeerFault):
            await client.pool()


async def test_no_content_where_a_record_is_due_is_the_servers_fault() -> None:
    async with server(always(204)) as client:
        with pytest.raises(PeerFault):
            await client.pool()
        assert await client.latest_manifest() is None


async def test_an_answer_longer_than_the_record_can_be_is_cut_off() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2 * PoolStatus.MAX_BYTES // 65536):
            await response.write(bytes(65536))
        return response

    async with server(endless) as client:
        with pytest.raises(PeerFault, match="more than"):
            await client.status()
        with pytest.raises(PeerFault, match="more than 10 bytes"):
            await client.get_chunk(sha256_hex(b"x"), 10)


async def test_a_chunk_with_other_bytes_is_not_taken() -> None:
    async with server(always(200, b"0123456789")) as client:
        assert await client.get_chunk(sha256_hex(b"0123456789"), 10) == b"0123456789"
        with pytest.raises(PeerFault):
            await client.get_chunk(sha256_hex(b"9876543210"), 10)
        with pytest.raises(PeerFault):
            await client.get_chunk(sha256_hex(b"0123456789"), 11)


async def test_evidence_that_is_not_the_verdicts_is_not_taken() -> None:
    evidence = EvidenceBundle(submission_digest=sha256_hex(b"s"), rewards=())
    verdict = Verdict(
        pool_digest=sha256_hex(b"p"),
        submission_digest=sha256_hex(b"s"),
        validator="v",
        outcome=Outcome.ACCEPTED,
        evidence_digest=evidence.digest(),
        judged_at_ms=0,
    )
    async with server(always(200, evidence.to_bytes())) as client:
        assert await client.evidence(verdict) == evidence
    other = EvidenceBundle(submission_digest=sha256_hex(b"s"), rewards=(), detail="other")
    async with server(always(200, other.to_bytes())) as client:
        with pytest.raises(PeerFault, match="evidence"):
            await client.evidence(verdict)


async def test_silence_is_passing_trouble() -> None:
    async def silent(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    async with server(silent) as client:
        with pytest.raises(Transient):
            await client.pool()


async def test_a_long_poll_is_given_its_time() -> None:
    """The silence that is allowed is `timeout_s` beyond `wait_s`."""

    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(float(request.query["wait_s"]))
        return web.Response(status=204)

    async with server(late) as client:
        assert await client.latest_manifest(wait_s=0.7) is None


async def test_nobody_listening_is_passing_trouble_with_the_address() -> None:
    async with CoordinatorClient("http://127.0.0.1:9", node="n", role=Role.WORKER) as client:
        with pytest.raises(Transient, match=r"coordinator at http://127\.0\.0\.1:9"):
            await client.pool()


async def test_the_end_of_the_run_is_heard_on_any_answer() -> None:
    async with server(always(204, **{FINISHED_HEADER: "1"})) as client:
        assert not client.is_finished
        assert await client.latest_manifest() is None
        assert client.is_finished


async def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(AssertionError, match="async with"):
        await CoordinatorClient("http://127.0.0.1:9", node="n", role=Role.WORKER).pool()


def test_long_polls_have_a_bound() -> None:
    assert MAX_WAIT_S <= 60
