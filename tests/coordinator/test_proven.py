"""Pools that are not open: a node is its key, and answers for nothing that the key did not sign."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.signed_calls import signing_headers
from farflung.errors import OurFault
from farflung.identity.keys import NodeKey, key_from_bytes, new_key
from farflung.identity.signing import check_signer, sign
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Forfeit, Lease, LeaseRequest
from farflung.wire.node import Role

COORDINATOR = key_from_bytes(b"\x0c" * 32)
ALICE, BOB, JUDGE = (key_from_bytes(bytes([number]) * 32) for number in (1, 2, 3))


@pytest.fixture
def proven(start: Any, build: Any) -> Any:
    """A running pool of this kind, with version 0 published."""

    @asynccontextmanager
    async def starter(**changes: Any) -> AsyncIterator[Any]:
        spec = build.pool_spec(trust="proven", coordinator=COORDINATOR.address, trainer=build.trainer.address)
        async with start(spec, key=COORDINATOR, **changes) as pool:
            await pool.publish()
            yield pool

    return starter


@asynccontextmanager
async def calling(pool: Any, key: NodeKey, role: Role = Role.WORKER, token: str | None = None) -> AsyncIterator[Any]:
    async with CoordinatorClient(pool.url, node="anybody", role=role, token=token) as client:
        client.sign_calls(key, pool.spec.digest())
        yield client


async def leased(client: CoordinatorClient) -> Lease:
    manifest = await client.latest_manifest()
    assert manifest is not None
    request = LeaseRequest(
        node=client.node, policy_version=manifest.policy_version, policy_digest=manifest.policy_digest
    )
    lease = await client.lease(request)
    assert lease is not None
    return lease


async def reason_of(call: Any) -> str:
    with pytest.raises(Refused) as refusal:
        await call
    return str(refusal.value.reason)


async def test_work_is_signed_from_lease_to_verdict(proven: Any, build: Any) -> None:
    async with proven() as pool, calling(pool, ALICE) as alice:
        lease = await leased(alice)
        assert lease.node == ALICE.address
        check_signer(lease, COORDINATOR.address)
        ticket = await alice.ticket(lease.lease_id)
        await alice.upload(ticket, build.rollout_file(lease))
        submission = sign(build.submission_of(pool.spec, lease, ticket.key), ALICE)
        receipt = await alice.submit(submission)
        check_signer(receipt, COORDINATOR.address)
        async with calling(pool, JUDGE, Role.VALIDATOR, build.tokens[Role.VALIDATOR]) as judge:
            (assignment,) = await judge.assignments(5)
            judgement = build.judgement_on(pool.spec, assignment.submission, JUDGE.address)
            assert await reason_of(judge.judge(judgement)) == "bad_signature"
            forged = replace(judgement, verdict=sign(judgement.verdict, BOB))
            assert await reason_of(judge.judge(forged)) == "bad_signature"
            await judge.judge(replace(judgement, verdict=sign(judgement.verdict, JUDGE)))
        (outcome,) = await (await pool.trainer()).outcomes()
        assert outcome.state == "accepted"


async def test_who_signs_nothing_gets_nothing(proven: Any) -> None:
    async with proven() as pool, CoordinatorClient(pool.url, node=ALICE.address, role=Role.WORKER) as stranger:
        assert await reason_of(leased(stranger)) == "bad_signature"


async def test_nobody_calls_submits_or_forfeits_in_anothers_name(proven: Any, build: Any) -> None:
    async with proven() as pool, calling(pool, ALICE) as alice, calling(pool, BOB) as bob:
        lease = await leased(alice)
        bob.node = ALICE.address
        assert await reason_of(bob.ticket(lease.lease_id)) == "bad_signature"
        assert await reason_of(bob.forfeit(sign(Forfeit(node=ALICE.address, lease_id=lease.lease_id), ALICE))) == (
            "bad_signature"
        )
        bob.node = BOB.address
        assert await reason_of(bob.forfeit(sign(Forfeit(node=BOB.address, lease_id=lease.lease_id), BOB))) == (
            "wrong_node"
        )
        ticket = await alice.ticket(lease.lease_id)
        await alice.upload(ticket, build.rollout_file(lease))
        submission = build.submission_of(pool.spec, lease, ticket.key)
        assert await reason_of(alice.submit(submission)) == "bad_signature"
        assert await reason_of(alice.submit(sign(submission, BOB))) == "bad_signature"
        changed = replace(sign(submission, ALICE), num_tokens=submission.num_tokens + 1)
        assert await reason_of(alice.submit(changed)) == "bad_signature"
        await alice.submit(sign(submission, ALICE))


async def test_w13_a_call_that_was_overheard_is_taken_once(proven: Any) -> None:
    async with proven() as pool, calling(pool, ALICE) as alice, aiohttp.ClientSession() as session:
        lease = await leased(alice)
        path = f"/v1/leases/{lease.lease_id}/ticket"
        at_ms = int((await (await pool.trainer()).status()).at_ms)
        headers = {"X-Farflung-Node": ALICE.address, "X-Farflung-Role": "worker"} | signing_headers(
            ALICE, pool.spec.digest(), "GET", path, sha256_hex(b""), at_ms
        )
        statuses = []
        for _ in range(2):
            async with session.get(pool.url + path, headers=headers) as answer:
                statuses.append(answer.status)
        assert statuses == [200, 403]


async def test_a_body_that_was_swapped_on_the_way_is_refused(proven: Any, build: Any) -> None:
    async with proven() as pool, calling(pool, ALICE) as alice, aiohttp.ClientSession() as session:
        lease = await leased(alice)
        ticket = await alice.ticket(lease.lease_id)
        path = f"/v1/objects/{ticket.key}"
        at_ms = int((await (await pool.trainer()).status()).at_ms)
        headers = {"X-Farflung-Node": ALICE.address, "X-Farflung-Role": "worker"} | signing_headers(
            ALICE, pool.spec.digest(), "PUT", path, sha256_hex(b"mine"), at_ms
        )
        async with session.put(pool.url + path, headers=headers, data=b"yours") as answer:
            assert answer.status == 403
            assert b"not the one that was signed" in await answer.read()
        await alice.upload(ticket, build.rollout_file(lease))


async def test_a_coordinator_without_a_key_does_not_start_such_a_pool(start: Any, build: Any) -> None:
    spec = build.pool_spec(trust="proven", coordinator=COORDINATOR.address, trainer=build.trainer.address)
    with pytest.raises(OurFault, match="no key"):
        async with start(spec):
            pass


async def test_versions_of_another_trainer_than_the_rules_name_are_refused(start: Any, build: Any) -> None:
    spec = build.pool_spec(trust="proven", coordinator=COORDINATOR.address, trainer=new_key().address)
    async with start(spec, key=COORDINATOR) as pool:
        assert await reason_of(pool.publish()) == "bad_signature"


def test_rules_that_name_no_keys_are_for_open_pools_only(build: Any) -> None:
    with pytest.raises(ValueError, match="names the keys"):
        build.pool_spec(trust="proven")
    with pytest.raises(ValueError, match="40 hex digits"):
        build.pool_spec(trust="proven", coordinator="0xabc", trainer=ALICE.address)
