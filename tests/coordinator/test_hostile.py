"""Bytes from strangers: every one is answered by a refusal with a reason, none by a traceback, and none is stored."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from farflung.api.records import Refusal
from farflung.api.routes import NODE_HEADER, ROLE_HEADER
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import LeaseRequest

WORKER = {NODE_HEADER: "w1", ROLE_HEADER: "worker"}
TRAINER = {NODE_HEADER: "t", ROLE_HEADER: "trainer", "Authorization": "Bearer trainer-" + "t" * 32}
VALIDATOR = {NODE_HEADER: "v1", ROLE_HEADER: "validator", "Authorization": "Bearer validator-" + "v" * 32}


@pytest.fixture
async def raw(pool: Any) -> AsyncIterator[Any]:
    """Sends anything; returns the status and the reason of the refusal."""
    async with aiohttp.ClientSession(pool.url, skip_auto_headers=["User-Agent"]) as session:

        async def send(method: str, path: str, **rest: Any) -> tuple[int, str]:
            async with session.request(method, path, allow_redirects=False, **rest) as response:
                body = await response.read()
            assert b"Traceback" not in body
            refusal = Refusal.from_bytes(body)
            assert refusal.message
            return response.status, refusal.reason

        yield send


def lease_request() -> dict[str, Any]:
    return {"node": "w1", "policy_version": 0, "policy_digest": sha256_hex(b"x"), "capability_class": "any"}


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


async def test_bodies_that_are_not_the_record_are_malformed(raw: Any) -> None:
    good = lease_request()
    bodies = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe\x00",
        b"[" * 4000,
        canonical({**good, "unknown": 1}),
        canonical({**good, "policy_version": "0"}),
        canonical({**good, "policy_version": -1}),
        canonical({**good, "policy_version": 2**70}),
        canonical({**good, "policy_digest": "0" * 63}),
        canonical({**good, "node": "w1\n"}),
        canonical({key: value for key, value in good.items() if key != "node"}),
        json.dumps(good).encode(),  # the right record, in other bytes
        canonical(good) + b" ",
    ]
    for body in bodies:
        assert await raw("POST", "/v1/leases", data=body, headers=WORKER) == (400, "malformed_record"), body


async def test_bodies_beyond_the_limit_are_cut_off(raw: Any, pool: Any) -> None:
    too_long = bytes(LeaseRequest.MAX_BYTES + 1)

    async def dripping() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(1000)

    assert await raw("POST", "/v1/leases", data=too_long, headers=WORKER) == (413, "too_large")
    assert await raw("POST", "/v1/leases", data=dripping(), headers=WORKER) == (413, "too_large")
    chunk = "/v1/chunks/" + sha256_hex(b"x")
    liar = {**TRAINER, "Content-Length": str(1 << 40)}
    reader, writer = await asyncio.open_connection("127.0.0.1", int(pool.url.rsplit(":", 1)[1]))
    lines = [f"PUT {chunk} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in liar.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    assert (await reader.readline()).split()[1] == b"413"
    writer.close()


async def test_a_compressed_bomb_is_not_unpacked(raw: Any) -> None:
    bomb = gzip.compress(bytes(1 << 20))
    headers = {**WORKER, "Content-Encoding": "gzip"}
    assert await raw("POST", "/v1/leases", data=bomb, headers=headers) == (400, "malformed_record")


async def test_callers_say_who_they_are_in_well_formed_headers(raw: Any) -> None:
    for node in ("", "../x", "a b", "-x", "é", "x" * 129):
        headers = {**WORKER, NODE_HEADER: node}
        assert await raw("POST", "/v1/leases", data=b"", headers=headers) == (400, "bad_request"), node
    assert await raw("POST", "/v1/leases", data=b"", headers={**WORKER, ROLE_HEADER: "king"}) == (400, "bad_request")
    assert await raw("POST", "/v1/leases", data=b"", headers={NODE_HEADER: "w1"}) == (400, "bad_request")
    assert await raw("POST", "/v1/leases", data=b"") == (403, "wrong_role")
    assert await raw("POST", "/v1/heartbeats", data=b"") == (403, "wrong_role")


async def test_query_parameters_are_checked(raw: Any) -> None:
    for query in ("after=x", "after=-2", "after=1e3", "limit=0", "limit=257", "wait_s=-1", "wait_s=nan", "wait_s=x"):
        assert await raw("GET", f"/v1/outcomes?{query}", headers=TRAINER) == (400, "bad_request"), query
    for count in ("0", "65", "9" * 400):
        path = f"/v1/assignments?max_count={count}"
        assert await raw("POST", path, headers=VALIDATOR) == (400, "bad_request"), count


async def test_unknown_routes_and_methods_are_refused(raw: Any) -> None:
    assert await raw("GET", "/") == (404, "no_route")
    assert await raw("GET", "/v1/manifests/-1") == (404, "no_route")
    assert await raw("GET", "/v1/chunks/ABC") == (404, "no_route")
    assert await raw("DELETE", "/v1/pool") == (405, "no_route")


async def test_no_key_leads_out_of_the_store(raw: Any, pool: Any) -> None:
    (pool.folder / "secret.txt").write_text("secret")
    for key in (
        "rollouts/../../secret.txt",
        "rollouts/%2e%2e/%2e%2e/secret.txt",
        "rollouts/..%2f..%2fsecret.txt",
        "rollouts//etc/passwd",
        "rollouts/a%00b",
        "%2Fetc%2Fpasswd",
    ):
        status, reason = await raw("GET", f"/v1/objects/{key}", headers=VALIDATOR)
        assert (status, reason) in {(404, "not_found"), (404, "no_route"), (400, "malformed_record")}, key
        status, reason = await raw("PUT", f"/v1/objects/{key}", data=b"x", headers=WORKER)
        assert reason in {"unknown_upload", "no_route"}, key


async def test_garbage_instead_of_http_does_not_stop_the_service(pool: Any) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01" * 50, b"GET / HTTP/9.9\r\n\r\n", b"A" * 100_000, b"\r\n" * 100):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(pool.url.rsplit(":", 1)[1]))
        writer.write(garbage)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 5)
        writer.close()
    assert await (await pool.worker()).pool() == pool.spec


async def test_a_body_that_stops_coming_is_given_up(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farflung.api.server.exchange.BODY_SILENCE_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(pool.url.rsplit(":", 1)[1]))
    headers = "".join(f"{name}: {value}\r\n" for name, value in WORKER.items())
    writer.write(f"POST /v1/leases HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: 100\r\n\r\nabc".encode())
    assert (await asyncio.wait_for(reader.readline(), 5)).split()[1] == b"400"
    writer.close()


async def test_a_bug_is_logged_and_not_shown(
    pool: Any, raw: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("path /home/somebody/secret")

    monkeypatch.setattr("farflung.coordinator.app.pool_status", broken)
    assert await raw("GET", "/v1/status") == (500, "unavailable")
    assert "secret" in caplog.text


async def test_a_store_that_is_away_is_a_passing_trouble(pool: Any, raw: Any, tmp_path: Path) -> None:
    from farflung.errors import Transient
    from farflung.store.object_store import ObjectStore

    def away(*_: object, **__: object) -> None:
        raise Transient("the bucket does not answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectStore, "get", away)
        assert await raw("GET", "/v1/objects/rollouts/x", headers=VALIDATOR) == (503, "unavailable")
    assert await raw("GET", "/v1/objects/rollouts/x", headers=VALIDATOR) == (404, "not_found")
