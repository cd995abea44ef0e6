"""A slot's whole life over HTTP, and that every call can be repeated."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from farflung.api.errors import Refused
from farflung.api.records import OpenSlots
from farflung.errors import PeerFault
from farflung.identity.keys import new_key
from farflung.identity.signing import sign
from farflung.wire.batch import SlotDrop
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Forfeit, LeaseRequest
from farflung.wire.node import Heartbeat, Role
from farflung.wire.verdict import RejectReason, SlotState


async def refused(call: Any) -> str:
    """The reason for which a call is refused."""
    with pytest.raises(Refused) as caught:
        await call
    assert caught.value.message
    return caught.value.reason


async def test_from_version_to_lease_to_file_to_verdict_to_batch_to_version(pool: Any) -> None:
    worker, validator, trainer = await pool.worker(), await pool.validator(), await pool.trainer()
    assert await worker.pool() == pool.spec
    manifest = await worker.latest_manifest()
    assert manifest == await worker.manifest(0)
    pieces = [await worker.get_chunk(chunk.sha256, chunk.num_bytes) for chunk in manifest.files[0].chunks]
    assert sha256_hex(b"".join(pieces)) == manifest.files[0].sha256

    lease = await pool.leased()
    assert (lease.slot, lease.attempt, lease.node, lease.policy_version) == (0, 0, "w1", 0)
    assert len(lease.task_indices) == len(lease.target_lengths) == 2
    submission = await pool.uploaded(lease)
    receipt = await worker.submit(submission)
    assert receipt.submission_digest == submission.digest()

    (assignment,) = await pool.assigned()
    assert (assignment.submission, assignment.lease) == (submission, lease)
    data = await validator.download(submission.file_key, 1 << 16)
    assert sha256_hex(data) == submission.file_digest
    await pool.judged(submission)

    (outcome,) = await trainer.outcomes()
    assert (outcome.slot, outcome.state, outcome.submission) == (0, SlotState.ACCEPTED, submission)
    evidence = await trainer.evidence(outcome.verdict)
    assert [result.reward for result in evidence.rewards] == [0.0, 1.0, 0.0, 1.0]
    assert await trainer.download(submission.file_key, 1 << 16) == data

    publication = await pool.publish([outcome])
    assert await trainer.last_publication() == publication
    assert await trainer.outcomes() == []
    newer = await worker.latest_manifest(newer_than=0, wait_s=5)
    assert newer is not None
    assert newer.policy_version == 1
    status = await trainer.status()
    assert status.policy_version == 1
    assert status.slots["accepted"] == 1
    assert (status.tokens_generated, status.tokens_accepted, status.outstanding_groups) == (20, 20, 0)


async def test_the_same_submission_again_is_accepted_once_and_gets_the_same_receipt(pool: Any) -> None:
    """protocol#600, case 64."""
    worker, trainer = await pool.worker(), await pool.trainer()
    submission = await pool.uploaded(await pool.leased())
    receipts = await asyncio.gather(*(worker.submit(submission) for _ in range(5)))
    assert len(set(receipts)) == 1
    await pool.judged(submission)
    assert await worker.submit(submission) == receipts[0]
    outcomes = await trainer.outcomes()
    assert len(outcomes) == 1
    await pool.publish(outcomes)
    assert await worker.submit(submission) == receipts[0]
    status = await trainer.status()
    assert (status.slots["accepted"], status.tokens_accepted) == (1, 20)


async def test_a_second_submission_for_the_same_lease_is_refused(pool: Any) -> None:
    submission = await pool.submitted()
    worker = await pool.worker()
    assert await refused(worker.submit(replace(submission, num_tokens=21))) == "lease_over"


async def test_a_submission_of_no_work_is_refused(pool: Any) -> None:
    """protocol#581, case 66."""
    submission = await pool.uploaded(await pool.leased())
    worker = await pool.worker()
    for field in ("num_rollouts", "num_tokens", "file_bytes"):
        assert await refused(worker.submit(replace(submission, **{field: 0}))) == "empty_work"
    await worker.submit(submission)


async def test_a_submission_that_does_not_repeat_its_lease_or_file_is_refused(pool: Any) -> None:
    other = sha256_hex(b"other")
    changes: list[tuple[dict[str, Any], str]] = [
        ({"slot": 7}, "lease_mismatch"),
        ({"attempt": 1}, "lease_mismatch"),
        ({"policy_version": 1}, "lease_mismatch"),
        ({"policy_digest": other}, "lease_mismatch"),
        ({"num_rollouts": 3}, "lease_mismatch"),
        ({"num_tokens": 2**40}, "lease_mismatch"),
        ({"file_key": "rollouts/elsewhere"}, "lease_mismatch"),
        ({"pool_digest": other}, "wrong_pool"),
        ({"lease_id": "99-0"}, "unknown_lease"),
        ({"lease_id": "0-1"}, "lease_over"),
        ({"lease_id": "nonsense"}, "unknown_lease"),
        ({"node": "w2"}, "wrong_node"),
        ({"file_digest": other}, "digest_mismatch"),
        ({"file_bytes": 5}, "file_missing"),
    ]
    submission = await pool.uploaded(await pool.leased())
    worker = await pool.worker()
    for change, reason in changes:
        assert await refused(worker.submit(replace(submission, **change))) == reason, change
    await worker.submit(submission)


async def test_a_submission_without_upload_is_refused(pool: Any, build: Any) -> None:
    lease = await pool.leased()
    worker = await pool.worker()
    ticket = await worker.ticket(lease.lease_id)
    assert await refused(worker.submit(build.submission_of(pool.spec, lease, ticket.key))) == "file_missing"


async def test_an_upload_without_a_ticket_of_ones_own_is_refused(pool: Any) -> None:
    """protocol#500, case 67: the name is the coordinator's choice, and nobody else's ticket works."""
    worker, other = await pool.worker("w1"), await pool.worker("w2")
    lease = await pool.leased("w1")
    ticket = await worker.ticket(lease.lease_id)
    assert await refused(other.ticket(lease.lease_id)) == "wrong_node"
    assert await refused(other.upload(ticket, b"x")) == "unknown_upload"
    guess = replace(ticket, key="rollouts/000000/0-0-0000000000000000.parquet")
    assert await refused(worker.upload(guess, b"x")) == "unknown_upload"
    submission = await pool.uploaded(lease)
    await worker.submit(submission)
    assert await refused(worker.upload(ticket, b"replaced after the receipt")) == "unknown_upload"
    assert await (await pool.validator()).download(ticket.key, 1000) == b"rollouts of 0-0 by w1"


async def test_an_upload_can_be_repeated_and_replaced_until_it_is_submitted(pool: Any, build: Any) -> None:
    lease = await pool.leased()
    worker = await pool.worker()
    ticket = await worker.ticket(lease.lease_id)
    assert await worker.ticket(lease.lease_id) == ticket
    for data in (b"first try", b"second try", b"second try", build.rollout_file(lease)):
        await worker.upload(ticket, data)
    await worker.submit(build.submission_of(pool.spec, lease, ticket.key))


async def test_a_file_above_the_limit_is_refused(pool: Any) -> None:
    lease = await pool.leased()
    worker = await pool.worker()
    ticket = await worker.ticket(lease.lease_id)
    await worker.upload(ticket, bytes(pool.spec.max_file_bytes))
    assert await refused(worker.upload(ticket, bytes(pool.spec.max_file_bytes + 1))) == "too_large"


async def test_asking_again_for_a_lease_gives_the_same(pool: Any) -> None:
    first = await pool.leased("w1")
    assert await pool.leased("w1") == first
    assert (await pool.leased("w2")).slot == 1


async def test_asking_with_a_newer_version_forfeits_the_old_lease(pool: Any) -> None:
    first = await pool.leased("w1")
    await pool.publish()
    second = await pool.leased("w1")
    assert (second.slot, second.policy_version) == (first.slot + 1, 1)
    assert await refused((await pool.worker("w1")).ticket(first.lease_id)) == "lease_over"


async def test_a_forfeited_lease_goes_to_another_node_with_other_draws(pool: Any) -> None:
    first = await pool.leased("w1")
    await pool.worker("w2")
    worker = await pool.worker("w1")
    other = await pool.worker("w2")
    wrong = Forfeit(node="w2", lease_id=first.lease_id)
    assert await refused(other.forfeit(wrong)) == "wrong_node"
    for _ in range(2):
        await worker.forfeit(Forfeit(node="w1", lease_id=first.lease_id, reason="stopping"))
    second = await pool.leased("w2")
    assert (second.slot, second.attempt) == (first.slot, 1)
    assert second.task_indices == first.task_indices
    assert second.draw_seed != first.draw_seed
    await worker.forfeit(Forfeit(node="w1", lease_id=first.lease_id))
    assert await pool.leased("w2") == second


async def test_an_unknown_policy_gets_no_lease(pool: Any) -> None:
    worker = await pool.worker()
    for version, digest in ((0, sha256_hex(b"other")), (1, sha256_hex(b"other"))):
        request = LeaseRequest(node="w1", policy_version=version, policy_digest=digest)
        assert await refused(worker.lease(request)) == "wrong_policy"


async def test_a_lease_request_waits_for_capacity(pool: Any) -> None:
    submissions = [await pool.submitted(f"w{index}") for index in range(4)]
    assert await pool.lease("w9") is None
    waiting = asyncio.create_task(pool.lease("w9", wait_s=20))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await pool.judged(submissions[0], RejectReason.SCHEMA)
    lease = await asyncio.wait_for(waiting, 5)
    assert lease is not None
    assert lease.slot == 4


async def test_a_lease_request_returns_when_its_version_is_no_longer_the_newest(pool: Any) -> None:
    for index in range(4):
        await pool.submitted(f"w{index}")
    waiting = asyncio.create_task(pool.lease("w9", wait_s=20))
    await asyncio.sleep(0.05)
    await pool.publish()
    assert await asyncio.wait_for(waiting, 5) is None


async def test_max_staleness_zero_is_synchronous(start: Any, build: Any) -> None:
    async with start(build.pool_spec(max_staleness=0, max_outstanding_groups=4)) as pool:
        await pool.publish()
        for version in range(3):
            for node in ("w1", "w2"):
                await pool.accepted(node)
            assert await pool.lease("w3") is None, "nobody samples while the trainer learns"
            outcomes = await (await pool.trainer()).outcomes()
            assert [outcome.policy_version for outcome in outcomes] == [version, version]
            await pool.publish(outcomes)
            assert (await pool.leased("w3")).policy_version == version + 1
            await (await pool.worker("w3")).forfeit(Forfeit(node="w3", lease_id=f"{2 * version + 2}-0"))


async def test_a_verdict_can_be_repeated_and_the_first_one_counts(pool: Any, build: Any) -> None:
    submission = await pool.submitted()
    await pool.judged(submission)
    await pool.judged(submission)
    await pool.judged(submission, RejectReason.SCHEMA)
    (outcome,) = await (await pool.trainer()).outcomes()
    assert outcome.state is SlotState.ACCEPTED
    validator = await pool.validator()
    other = replace(submission, num_tokens=99)
    assert await refused(validator.judge(build.judgement_on(pool.spec, other, "v1"))) == "unknown_submission"
    foreign = build.judgement_on(build.pool_spec(name="other"), submission, "v1")
    assert await refused(validator.judge(foreign)) == "wrong_pool"
    assert await refused(validator.judge(build.judgement_on(pool.spec, submission, "v2"))) == "wrong_node"


async def test_an_accepting_verdict_needs_a_reward_for_each_rollout(pool: Any, build: Any) -> None:
    submission = await pool.submitted()
    good = build.judgement_on(pool.spec, submission, "v1")
    await pool.assigned()
    evidence = replace(good.evidence, rewards=good.evidence.rewards[1:])
    short = replace(good, evidence=evidence, verdict=replace(good.verdict, evidence_digest=evidence.digest()))
    assert await refused((await pool.validator()).judge(short)) == "bad_request"


async def test_a_publication_can_be_repeated(pool: Any) -> None:
    trainer = await pool.trainer()
    await pool.accepted()
    publication = await pool.publish(await trainer.outcomes())
    await trainer.publish(publication)
    assert (await trainer.status()).policy_version == 1
    assert (await trainer.status()).slots["accepted"] == 1


async def test_publications_that_break_the_chain_are_refused_and_change_nothing(pool: Any, build: Any) -> None:
    await pool.accepted()
    trainer = await pool.trainer()
    last = await trainer.last_publication()
    outcomes = await trainer.outcomes()
    good = build.publication_of(pool.spec, last, outcomes)
    await pool.store_chunks(good.manifest)
    manifest, batch = good.manifest, good.batch

    def changed(**changes: Any) -> Any:
        return replace(good, manifest=build.signed(replace(manifest, **changes)))

    def with_batch(**changes: Any) -> Any:
        return replace(good, batch=build.signed(replace(batch, **changes)))

    other = sha256_hex(b"other")
    missing = build.manifest_of(pool.spec, 7, None)
    cases = {
        "wrong_pool": [changed(pool_digest=other), with_batch(pool_digest=other)],
        "version_order": [changed(policy_version=2), changed(policy_version=0), changed(previous_digest=other)],
        "bad_signature": [
            replace(good, manifest=replace(manifest, signature="")),
            replace(good, manifest=replace(manifest, optimizer_step=99)),
            replace(good, manifest=sign(manifest, new_key())),
            replace(good, batch=replace(batch, signature="")),
            replace(good, batch=sign(batch, new_key())),
        ],
        "digest_mismatch": [changed(policy_digest=other)],
        "chunk_missing": [changed(files=missing.files, policy_digest=missing.policy_digest)],
        "batch_link": [
            with_batch(policy_version=2),
            with_batch(previous_digest=other),
            with_batch(items=batch.items * 2),
            with_batch(items=(replace(batch.items[0], slot=5),)),
            with_batch(items=(replace(batch.items[0], submission_digest=other),)),
            with_batch(drops=(SlotDrop(slot=0, reason="both"),)),
        ],
    }
    for reason, publications in cases.items():
        for publication in publications:
            assert await refused(trainer.publish(publication)) == reason
    assert await trainer.last_publication() == last
    assert await trainer.outcomes() == outcomes
    await trainer.publish(good)


async def test_a_rollout_is_trained_on_at_most_once(pool: Any, build: Any) -> None:
    await pool.accepted()
    trainer = await pool.trainer()
    outcomes = await trainer.outcomes()
    last = await pool.publish(outcomes)
    again = build.publication_of(pool.spec, last, outcomes)
    await pool.store_chunks(again.manifest)
    assert await refused(trainer.publish(again)) == "batch_link"


async def test_drops_are_counted_by_reason(pool: Any) -> None:
    await pool.accepted()
    await pool.judged(await pool.submitted("w2"), RejectReason.PROMPT)
    await pool.publish(drops=[SlotDrop(slot=0, reason="no_signal")])
    status = await (await pool.trainer()).status()
    assert status.drops == {"no_signal": 2, "prompt": 2}
    assert status.outstanding_groups == 0


async def test_outcomes_wait_and_go_on_where_the_trainer_stopped(pool: Any) -> None:
    trainer = await pool.trainer()
    waiting = asyncio.create_task(trainer.outcomes(wait_s=20))
    await asyncio.sleep(0.05)
    await pool.accepted("w1")
    (first,) = await asyncio.wait_for(waiting, 5)
    await pool.accepted("w2")
    (second,) = await trainer.outcomes(after=first.sequence)
    assert (first.sequence, second.sequence) == (0, 1)
    assert await trainer.outcomes(after=1, wait_s=0.05) == []
    assert [found.sequence for found in await trainer.outcomes(limit=1)] == [0]


async def test_open_slots_are_those_still_to_come(pool: Any) -> None:
    await pool.accepted("w1")
    await pool.leased("w2")
    await pool.submitted("w3")
    await pool.judged(await pool.submitted("w4"), RejectReason.SCHEMA)
    assert await (await pool.trainer()).open_slots() == OpenSlots(slots=(1, 2), next_slot=4)


async def test_a_finished_run_tells_everyone_and_ends_long_polls(pool: Any) -> None:
    worker, validator, trainer = await pool.worker(), await pool.validator(), await pool.trainer()
    manifest = await worker.latest_manifest()
    polls = [
        asyncio.create_task(worker.latest_manifest(newer_than=0, wait_s=20)),
        asyncio.create_task(validator.assignments(wait_s=20)),
    ]
    await asyncio.sleep(0.05)
    assert not worker.is_finished
    await trainer.finish()
    await asyncio.wait_for(asyncio.gather(*polls), 5)
    assert worker.is_finished
    assert validator.is_finished
    assert (await trainer.status()).is_finished
    request = LeaseRequest(node="w1", policy_version=0, policy_digest=manifest.policy_digest)
    assert await worker.lease(request, wait_s=20) is None
    newcomer = await pool.worker("late")
    with pytest.raises(Refused):
        await newcomer.manifest(99)
    assert newcomer.is_finished, "refusals tell it as well"


async def test_heartbeats_appear_in_the_status_and_nobody_beats_for_another(pool: Any) -> None:
    worker = await pool.worker("w1")
    beat = Heartbeat(
        node="w1", role=Role.WORKER, policy_version=0, activity="sampling", busy_s=1.5, idle_s=0.5, cpu_s=1.0
    )
    await worker.heartbeat(beat)
    (node,) = (await worker.status()).nodes
    assert (node.heartbeat, node.is_alive) == (beat, True)
    assert await refused(worker.heartbeat(replace(beat, node="w2"))) == "wrong_node"
    assert await refused(worker.heartbeat(replace(beat, role=Role.TRAINER))) == "wrong_role"


async def test_each_role_keeps_to_its_routes(pool: Any) -> None:
    worker, validator = await pool.worker(), await pool.validator()
    publication = await worker.last_publication()
    assert await refused(worker.publish(publication)) == "wrong_role"
    assert await refused(worker.put_chunk(sha256_hex(b"x"), b"x")) == "wrong_role"
    assert await refused(worker.finish()) == "wrong_role"
    assert await refused(worker.assignments()) == "wrong_role"
    assert await refused(worker.download("rollouts/x", 10)) == "wrong_role"
    assert await refused(validator.ticket("0-0")) == "wrong_role"


async def test_what_is_not_there_is_said_to_be_not_there(pool: Any) -> None:
    validator, trainer = await pool.validator(), await pool.trainer()
    assert await refused(trainer.manifest(5)) == "not_found"
    assert await refused(trainer.get_chunk(sha256_hex(b"x"), 1)) == "not_found"
    for key in ("rollouts/none.parquet", "chunks/" + sha256_hex(b"x"), "pool", "evidence/none.json"):
        assert await refused(validator.download(key, 10)) == "not_found"


async def test_a_chunk_with_another_hash_is_refused(pool: Any) -> None:
    assert await refused((await pool.trainer()).put_chunk(sha256_hex(b"x"), b"y")) == "digest_mismatch"


async def test_a_chunk_of_another_size_than_announced_is_not_taken(pool: Any) -> None:
    worker = await pool.worker()
    chunk = (await worker.latest_manifest()).files[0].chunks[0]
    for num_bytes in (chunk.num_bytes - 1, chunk.num_bytes + 1):
        with pytest.raises(PeerFault):
            await worker.get_chunk(chunk.sha256, num_bytes)
