"""W11, W13 and W25 to W28 before a running coordinator: seeds, names, other people's files, files that change later."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.errors import PeerFault
from farflung.slots.permutation import KeyedPermutation
from farflung.slots.seeds import commit_secret, draw_seed
from farflung.store.keys import check_key
from farflung.trainer.intake import IntakeRules, graded_groups
from farflung.wire.node import Role
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.verdict import RejectReason, SlotState
from running_pool import Crew, coordinator, crew, publish_version, submission_for
from tiny_pool import description, pool_spec, reserved, tiny_policy

POOL = pool_spec()
SECRET = bytes(range(32))


@dataclass
class Place:
    folder: Path
    trainer: CoordinatorClient
    victim: Crew
    mallory: Crew


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    async with coordinator(folder, POOL) as url, crew(url, POOL) as victim:
        trainer = await victim.client(Role.TRAINER, "trainer")
        await publish_version(trainer, POOL, tiny_policy())
        yield Place(folder, trainer, victim, await victim.another("mallory"))


async def refusal(call: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(Refused) as caught:
        await call()
    return caught.value.reason


def test_w11_names_are_ground_in_vain_while_the_secret_is_sealed() -> None:
    """A node's name enters its draws through a keyed hash alone, and its tasks not at all.

    What a grinder can compute before the reveal, from all that is public, is uncorrelated with the draws.
    """
    policy = "ab" * 32
    guessed, true = commit_secret(SECRET).encode()[:32], SECRET
    promising = [
        name
        for name in (f"0x{number:040x}" for number in range(4000))
        if draw_seed(guessed, policy, 3, name, 0)[0] < 0x10
    ]
    lucky = sum(draw_seed(true, policy, 3, name, 0)[0] < 0x10 for name in promising)
    assert len(promising) > 150
    assert lucky / len(promising) < 0.16, "a sixteenth, as without any grinding"
    order = KeyedPermutation(true, 100)
    assert sorted(map(order.at, range(100))) == list(range(100)), "tasks follow from the slot, whoever has it"


async def test_w13_w26_a_file_is_its_nodes_own(tmp_path: Path) -> None:
    """Another node's file is neither read nor named nor overwritten, nor is one's own handed in twice."""
    async with place(tmp_path) as pool:
        lease = await pool.victim.lease()
        theirs = await pool.mallory.lease()
        assert lease is not None
        assert theirs is not None
        assert pool.victim.sampler is not None
        rows = pool.victim.sampler.sample(lease, pool.victim.environment, POOL)
        data = write_rollouts(rows, POOL.digest())
        ticket = await pool.victim.worker.ticket(lease.lease_id)
        await pool.victim.worker.upload(ticket, data)
        honest = submission_for(lease, rows, data, ticket.key)
        mallory = pool.mallory.worker
        assert await refusal(lambda: mallory.upload(ticket, b"other bytes")) == "unknown_upload"
        assert await refusal(lambda: mallory.submit(honest)) == "wrong_node"
        stolen = submission_for(theirs, rows, data, ticket.key)
        assert await refusal(lambda: mallory.submit(stolen)) == "lease_mismatch", "the key is of another lease"
        receipt = await pool.victim.worker.submit(honest)
        assert await pool.victim.worker.submit(honest) == receipt, "handed in twice it is one"
        renamed = replace(honest, file_key="rollouts/elsewhere")
        assert await refusal(lambda: pool.victim.worker.submit(renamed)) == "lease_over"
        await pool.victim.judge(honest)
        (outcome,) = await pool.trainer.outcomes(-1, wait_s=5.0)
        assert outcome.state is SlotState.ACCEPTED
        assert outcome.submission is not None
        assert outcome.submission.node == pool.victim.node


async def test_w27_a_file_that_is_replaced_after_its_verdict_is_not_learned_from(tmp_path: Path) -> None:
    async with place(tmp_path) as pool:
        submission = await pool.victim.submit()
        assert submission is not None
        await pool.victim.judge(submission)
        (outcome,) = await pool.trainer.outcomes(-1, wait_s=5.0)
        assert outcome.verdict is not None
        evidence = await pool.trainer.evidence(outcome.verdict)
        rules = IntakeRules(pool=POOL, vocab_size=description().config.vocab_size, reserved_token_ids=reserved())
        data = await pool.trainer.download(submission.file_key, 1 << 20)
        assert graded_groups(outcome, data, evidence, rules)
        stored = pool.folder / "store" / submission.file_key
        stored.write_bytes(data[:-20] + bytes(12) + data[-8:])
        replaced = await pool.trainer.download(submission.file_key, 1 << 20)
        assert replaced != data
        with pytest.raises(PeerFault) as caught:
            graded_groups(outcome, replaced, evidence, rules)
        assert caught.value.reason == RejectReason.FILE_DIGEST


PIECES = (
    "..",
    ".",
    "/",
    "\\",
    "\0",
    "~",
    "rollouts",
    "${NODE_GROUP_ID}",
    "%2e%2e",
    "C:",
    "\u202e",
    "\uff0e\uff0e",
    "a",
)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8))
def test_w25_no_name_leads_out_of_the_store(pieces: list[str]) -> None:
    """Every key is refused, or lies below the root when it is joined to it."""
    for key in ("/".join(pieces), "".join(pieces)):
        try:
            check_key(key)
        except (ValueError, PeerFault):
            continue
        root = Path("/store")
        assert root in (root / key).resolve().parents, key
        assert not set(Path(key).parts) & {"..", "."}


async def test_w25_where_a_file_lies_is_not_the_workers_choice(tmp_path: Path) -> None:
    """The name in a claim must be the one that the ticket gave."""
    async with place(tmp_path) as pool:
        lease = await pool.victim.lease()
        assert lease is not None
        assert pool.victim.sampler is not None
        rows = pool.victim.sampler.sample(lease, pool.victim.environment, POOL)
        data = write_rollouts(rows, POOL.digest())
        ticket = await pool.victim.worker.ticket(lease.lease_id)
        await pool.victim.worker.upload(ticket, data)
        for key in ("../../../tmp/x", "/etc/passwd", "rollouts/../../x", "rollouts/a b"):
            claimed = submission_for(lease, rows, data, key)
            assert await refusal(partial(pool.victim.worker.submit, claimed)) in {
                "lease_mismatch",
                "malformed_record",
            }
        await pool.victim.worker.submit(submission_for(lease, rows, data, ticket.key))
