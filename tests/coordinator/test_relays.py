"""Relays before a running coordinator: honest ones, liars, dead ones, and those who name other people's machines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.coordinator import relays
from farflung.identity.keys import key_from_bytes
from farflung.wire.manifest import Manifest
from farflung.wire.node import Role
from farflung.wire.relay import RelayOffer, RelayStatus, Sources

COORDINATOR, RELAY, MALLORY = (key_from_bytes(bytes([number]) * 32) for number in (0x0C, 1, 2))
Answer = Callable[[str], Awaitable[web.StreamResponse]]


@dataclass
class FakeRelay:
    """A server with the routes of a relay, which passes on what the coordinator has unless a test changes that."""

    coordinator: str
    manifest: Callable[[bytes], web.StreamResponse] = lambda body: web.Response(body=body)
    change: Callable[[bytes], web.StreamResponse] = lambda body: web.Response(body=body)
    url: str = ""
    asked: list[str] = field(default_factory=list)

    async def latest(self, _request: web.Request) -> web.StreamResponse:
        return self.manifest(await self._fetch("/v1/manifests/latest"))

    async def chunk(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.match_info["sha256"])
        return self.change(await self._fetch(request.path))

    async def _fetch(self, path: str) -> bytes:
        async with aiohttp.ClientSession() as session, session.get(self.coordinator + path) as answer:
            return await answer.read()


@asynccontextmanager
async def relaying(pool: Any, **behaviour: Any) -> AsyncIterator[FakeRelay]:
    relay = FakeRelay(pool.url, **behaviour)
    app = web.Application()
    app.router.add_get("/v1/manifests/latest", relay.latest)
    app.router.add_get("/v1/chunks/{sha256}", relay.chunk)
    async with TestServer(app) as server:
        relay.url = str(server.make_url("")).rstrip("/")
        yield relay


@pytest.fixture
async def pool(start: Any) -> AsyncIterator[Any]:
    async with start(private_relays=True) as pool:
        await pool.publish()
        yield pool


def offer_of(url: str, relay: str = "r1", **changes: Any) -> RelayOffer:
    values = {"relay": relay, "url": url, "upload_bytes_per_s": 10_000_000, "policy_version": 0}
    return RelayOffer(**(values | changes))


async def offered(pool: Any, url: str, node: str = "r1", **changes: Any) -> Sources:
    return await (await pool.client(Role.RELAY, node)).offer_relay(offer_of(url, node, **changes))


async def status_of(pool: Any, url: str) -> RelayStatus:
    status = await (await pool.worker()).status()
    return next(relay for relay in status.relays if relay.url == url)


async def looked_at(pool: Any, url: str) -> RelayStatus:
    """The relay's status once it is listed, or dropped for a reason that a look has shown."""
    return await problem_of(pool, url, lambda problem: problem != "it was not looked at yet")


async def problem_of(pool: Any, url: str, is_it: Callable[[str], bool]) -> RelayStatus:
    """The relay's status once its problem is such."""
    async with asyncio.timeout(5):
        while not is_it((status := await status_of(pool, url)).problem):  # noqa: ASYNC110 (seen over HTTP alone)
            await asyncio.sleep(0.01)
    return status


async def above(pool: Any, url: str, node: str, servers: tuple[str, ...]) -> None:
    """Wait until the relay is listed and told of these."""
    async with asyncio.timeout(5):
        while True:
            answer = await offered(pool, url, node)
            if answer.servers == servers and not answer.refusal:
                return
            await asyncio.sleep(0.02)


async def test_a_relay_registers_is_looked_at_and_handed_to_workers_and_validators(pool: Any) -> None:
    async with relaying(pool) as relay:
        answer = await offered(pool, relay.url)
        assert "not looked at" in answer.refusal
        status = await looked_at(pool, relay.url)
        assert (status.problem, status.relay, status.parent) == ("", "r1", "")
        assert len(relay.asked) == 1, "the smallest chunk alone"
        assert (await offered(pool, relay.url)).refusal == ""
        assert await (await pool.worker()).relays() == (relay.url,)
        assert await (await pool.validator()).relays() == (relay.url,)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"change": lambda body: web.Response(body=bytes([body[0] ^ 1]) + body[1:])}, "lied: chunk_digest"),
        ({"change": lambda body: web.Response(body=body + b"!")}, "bytes announced"),
        ({"change": lambda _body: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})}, "a redirect"),
        ({"manifest": lambda _body: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})}, "redirect"),
        ({"manifest": lambda _body: web.Response(status=500)}, "unreachable: answered 500"),
        ({"manifest": lambda _body: web.Response(body=b"{}")}, "malformed_record"),
        ({"manifest": lambda _body: web.Response(body=b"x" * (Manifest.MAX_BYTES + 1))}, "are the most"),
        (
            {"manifest": lambda body: web.Response(body=replace(Manifest.from_bytes(body), signature="x").to_bytes())},
            "lied: split_view",
        ),
        (
            {
                "manifest": lambda body: web.Response(
                    body=replace(Manifest.from_bytes(body), policy_version=9).to_bytes()
                )
            },
            "unknown_version",
        ),
    ],
)
async def test_who_does_not_serve_what_was_published_is_not_handed_out(
    pool: Any, behaviour: dict[str, Any], words: str
) -> None:
    async with relaying(pool, **behaviour) as relay:
        await offered(pool, relay.url)
        assert words in (await looked_at(pool, relay.url)).problem
        assert words in (await offered(pool, relay.url)).refusal
        assert await (await pool.worker()).relays() == ()


async def test_a_dead_address_is_named_so(pool: Any) -> None:
    async with relaying(pool) as relay:
        pass
    await offered(pool, relay.url)
    assert (await looked_at(pool, relay.url)).problem.startswith("unreachable")


async def test_a_relay_that_never_ends_its_answer_is_given_up(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "LOOK_S", 0.2)

    async def drip(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    app = web.Application()
    app.router.add_get("/v1/manifests/latest", drip)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        await offered(pool, url)
        assert "no answer in" in (await looked_at(pool, url)).problem


async def test_a_relay_that_lies_to_one_worker_is_caught_once_he_says_so(pool: Any) -> None:
    def lie_in_the_large_ones(body: bytes) -> web.StreamResponse:
        return web.Response(body=body if len(body) == 60 else bytes(len(body)))

    async with relaying(pool, change=lie_in_the_large_ones) as relay:
        await offered(pool, relay.url)
        assert (await looked_at(pool, relay.url)).problem == ""
        worker = await pool.worker()
        assert await worker.relays() == (relay.url,)
        assert await worker.relays(liars=(relay.url,)) == (), "whoever accuses a relay is not sent there again"
        pool.clock.ahead_ms += 10_000
        await offered(pool, relay.url)
        status = await problem_of(pool, relay.url, lambda problem: problem.startswith("lied"))
        assert status.num_accusers == 1
        assert await (await pool.worker("w2")).relays() == ()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://9.9.9.9:7500", "the only host"),
        ("http://169.254.169.254", "the only host"),
        ("http://localhost:7500", "a name"),
    ],
)
async def test_nobody_registers_another_machine(pool: Any, url: str, words: str) -> None:
    assert words in (await offered(pool, url)).refusal
    status = await (await pool.worker()).status()
    assert status.relays == ()


async def test_loopback_is_not_taken_unless_the_operator_says_so(start: Any) -> None:
    async with start() as pool, relaying(pool) as relay:
        assert "coordinator.private_relays" in (await offered(pool, relay.url)).refusal


async def test_a_relay_that_the_operator_lists_needs_no_registration(start: Any, tmp_path: Any) -> None:
    async with start() as first, relaying(first) as relay:
        await first.publish()
        async with start(relays=(relay.url,), database_url=f"sqlite:///{tmp_path}/2.db") as pool:
            await pool.publish()
            pool.clock.ahead_ms += 6_000  # it may have been looked at before there was anything to compare with
            await problem_of(pool, relay.url, lambda problem: not problem)
            assert await (await pool.worker()).relays() == (relay.url,)


async def test_relays_stand_below_relays_and_move_up_when_their_parent_falls_silent(start: Any) -> None:
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(start(private_relays=True, relay_fan_out=1))
        await pool.publish()
        first, second = [await stack.enter_async_context(relaying(pool)) for _ in range(2)]
        await offered(pool, first.url, "r1")
        await looked_at(pool, first.url)
        await above(pool, first.url, "r1", ())
        await offered(pool, second.url, "r2")
        await looked_at(pool, second.url)
        await above(pool, second.url, "r2", (first.url,))
        assert (await offered(pool, first.url, "r1")).servers == ()
        pool.clock.ahead_ms += 25_000
        await above(pool, second.url, "r2", ())
        assert (await status_of(pool, first.url)).problem == "silent"


async def test_a_relay_is_told_what_has_to_be_kept(pool: Any) -> None:
    async with relaying(pool) as relay:
        assert (await offered(pool, relay.url)).oldest_version == 0


async def test_in_a_proven_pool_a_relay_is_its_key(start: Any, build: Any) -> None:
    spec = build.pool_spec(trust="proven", coordinator=COORDINATOR.address, trainer=build.trainer.address)
    async with start(spec, key=COORDINATOR, private_relays=True) as pool:
        await pool.publish()
        async with CoordinatorClient(pool.url, node="anybody", role=Role.RELAY) as client:
            with pytest.raises(Refused) as unsigned:
                await client.offer_relay(offer_of("http://127.0.0.1:7500", "anybody"))
            client.sign_calls(RELAY, spec.digest())
            with pytest.raises(Refused) as foreign:
                await client.offer_relay(offer_of("http://127.0.0.1:7500", MALLORY.address))
            answer = await client.offer_relay(offer_of("http://127.0.0.1:7500", RELAY.address))
        async with CoordinatorClient(pool.url, node="anybody", role=Role.WORKER) as worker:
            with pytest.raises(Refused) as nobody:
                await worker.relays()
            worker.sign_calls(MALLORY, spec.digest())
            assert await worker.relays() == ()
        assert nobody.value.reason == "bad_signature"
        assert (unsigned.value.reason, foreign.value.reason) == ("bad_signature", "wrong_node")
        assert "not looked at" in answer.refusal


@pytest.mark.parametrize("role", [Role.WORKER, Role.VALIDATOR, Role.TRAINER])
async def test_only_a_relay_offers_itself(pool: Any, role: Role) -> None:
    with pytest.raises(Refused, match="for relay"):
        await (await pool.client(role, "r1")).offer_relay(offer_of("http://127.0.0.1:7500"))


@pytest.mark.parametrize("body", [b"", b"{}", b'{"url":1}', b"\xff", b"[" * 9000])
async def test_what_is_no_offer_is_refused(pool: Any, body: bytes) -> None:
    headers = {"X-Farflung-Node": "r1", "X-Farflung-Role": "relay"}
    async with aiohttp.ClientSession() as session:
        for path in ("/v1/relays", "/v1/sources"):
            async with session.post(pool.url + path, data=body, headers=headers) as answer:
                assert 400 <= answer.status < 500
