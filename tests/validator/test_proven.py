"""A proven pool with real roles: honest work is accepted and measured, each cheat is named, versions are told apart."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from farflung.api.client import CoordinatorClient
from farflung.errors import PeerFault
from farflung.identity.keys import key_from_bytes
from farflung.identity.signing import check_signer
from farflung.trainer.intake import IntakeRules, graded_groups
from farflung.validation.judge import SLASHABLE
from farflung.validator import service
from farflung.validator.config import ValidatorConfig
from farflung.wire.batch import SlotOutcome
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.wire.proof import DEFAULT_RULES, ProofRules, RolloutFigures
from farflung.wire.rollout import Rollout
from farflung.wire.verdict import RejectReason, SlotState
from running_pool import COORDINATOR, TRAINER, Crew, coordinator, crew, publish_version
from tiny_pool import FAST, description, pool_spec, reserved, tiny_policy

NODE = key_from_bytes(b"\x01" * 32)
POOL = pool_spec(
    trust="proven", coordinator=COORDINATOR.address, trainer=TRAINER.address, proofs=DEFAULT_RULES, max_staleness=2
)


@dataclass
class Place:
    trainer: CoordinatorClient
    crew: Crew

    async def handed_in(self, tamper: Callable[[list[Rollout]], Sequence[Rollout]]) -> None:
        self.crew.tamper = tamper
        assert await self.crew.submit() is not None

    async def outcome(self, after: int = -1) -> SlotOutcome:
        async with asyncio.timeout(30):
            while not (found := await self.trainer.outcomes(after, wait_s=1.0)):
                pass
        return found[0]


@asynccontextmanager
async def place(folder: Path, pool: PoolSpec = POOL) -> AsyncIterator[Place]:
    """A coordinator with version 0, a worker that the test scripts, and a validator at work."""
    async with coordinator(folder, pool) as url, crew(url, pool, NODE) as made:
        trainer = await made.client(Role.TRAINER, "trainer")
        await publish_version(trainer, pool, tiny_policy())
        stop = asyncio.Event()
        settings = ValidatorConfig.model_validate(FAST)
        judging = asyncio.create_task(service.run(settings, url=url, stop=stop))
        try:
            yield Place(trainer, made)
        finally:
            stop.set()
            await judging


async def test_honest_work_is_accepted_with_figures_and_signed(tmp_path: Path) -> None:
    async with place(tmp_path) as pool:
        await pool.handed_in(lambda rollouts: rollouts)
        outcome = await pool.outcome()
        assert outcome.state is SlotState.ACCEPTED
        assert outcome.submission is not None
        assert outcome.verdict is not None
        check_signer(outcome.submission, NODE.address)
        check_signer(outcome.verdict, outcome.verdict.validator)
        assert outcome.verdict.measured["proof/max_margin"] == 0.0
        assert outcome.verdict.measured["proof/activation_submission"] < 0.005
        evidence = await pool.trainer.evidence(outcome.verdict)
        assert len(evidence.figures) == POOL.rollouts_per_slot


async def test_pools_may_ask_for_the_published_scheme(tmp_path: Path) -> None:
    limits = structs.replace(DEFAULT_RULES.reject, activation_chunk=1.0, activation_submission=1.0)
    wide = structs.replace(DEFAULT_RULES.slash, activation_chunk=2.0, activation_submission=2.0)
    rules = ProofRules(scheme="toploc", reject=limits, slash=wide)
    for tamper, state in ((list, SlotState.ACCEPTED), (forged_proofs, SlotState.REJECTED)):
        async with place(tmp_path / state.value, structs.replace(POOL, proofs=rules)) as pool:
            await pool.handed_in(tamper)
            outcome = await pool.outcome()
            assert outcome.state is state
            assert outcome.verdict is not None
            if state is SlotState.ACCEPTED:
                assert outcome.verdict.measured["proof/activation_submission"] == 0.0
                assert outcome.verdict.measured["proof/least_forgery"] > 0.0
            else:
                assert outcome.verdict.reason is RejectReason.PROOF_SHAPE, "a modulus of 0x1111"


async def test_the_trainer_learns_with_the_verifiers_logprobs(tmp_path: Path) -> None:
    """W18: what a worker writes there is compared and then forgotten."""

    def slightly_off(rollouts: list[Rollout]) -> list[Rollout]:
        return [replace(row, logprobs=row.logprobs - np.float32(0.01)) for row in rollouts]

    async with place(tmp_path) as pool:
        await pool.handed_in(slightly_off)
        outcome = await pool.outcome()
        assert outcome.state is SlotState.ACCEPTED
        assert outcome.submission is not None
        assert outcome.verdict is not None
        evidence = await pool.trainer.evidence(outcome.verdict)
        data = await pool.trainer.download(outcome.submission.file_key, 1 << 20)
    rules = IntakeRules(pool=POOL, vocab_size=description().config.vocab_size, reserved_token_ids=reserved())
    groups = graded_groups(outcome, data, evidence, rules)
    told = {
        (each.group, each.sample): np.frombuffer(base64.b64decode(each.logprobs), dtype="<f4")
        for each in evidence.figures
    }
    learned_with = {(row.group, row.sample): row.logprobs for group in groups for row in group.rollouts}
    assert learned_with.keys() == told.keys()
    assert all(np.array_equal(learned_with[place], told[place]) for place in told)


def with_logprobs(figures: RolloutFigures, shift: float) -> RolloutFigures:
    told = np.frombuffer(base64.b64decode(figures.logprobs), dtype="<f4") - np.float32(shift)
    return structs.replace(figures, logprobs=base64.b64encode(told.tobytes()).decode())


async def test_v2_a_validator_cannot_teach_other_logprobs_than_those_that_the_others_agreed_to(tmp_path: Path) -> None:
    """Its vote is the others' (outcome and rewards), its figures are not: the trainer holds them against the rules."""
    async with place(tmp_path) as pool:
        await pool.handed_in(list)
        outcome = await pool.outcome()
        assert outcome.submission is not None
        assert outcome.verdict is not None
        evidence = await pool.trainer.evidence(outcome.verdict)
        data = await pool.trainer.download(outcome.submission.file_key, 1 << 20)
    rules = IntakeRules(pool=POOL, vocab_size=description().config.vocab_size, reserved_token_ids=reserved())
    first, *rest = evidence.figures
    limit = DEFAULT_RULES.reject.logprob_error
    for changed, words in (
        (with_logprobs(first, limit + 0.01), "from the sampler's"),
        (with_logprobs(first, float("nan")), "from the sampler's"),
        (structs.replace(first, max_margin=9.0), "accepted with figures that are rejected"),
    ):
        lie = structs.replace(evidence, figures=(changed, *rest))
        with pytest.raises(PeerFault, match=words):
            graded_groups(outcome, data, lie, rules)
    within = structs.replace(evidence, figures=(with_logprobs(first, limit - 0.01), *rest))
    assert graded_groups(outcome, data, within, rules)


def without_proofs(rollouts: list[Rollout]) -> list[Rollout]:
    return [replace(row, proof=b"") for row in rollouts]


def forged_proofs(rollouts: list[Rollout]) -> list[Rollout]:
    return [replace(row, proof=b"\x11" * len(row.proof)) for row in rollouts]


def fake_logprobs(rollouts: list[Rollout]) -> list[Rollout]:
    return [replace(row, logprobs=np.maximum(row.logprobs * 3 - 1, -20)) for row in rollouts]


def samples_exchanged(rollouts: list[Rollout]) -> list[Rollout]:
    """The best completion in every place of its group, each with its own proof."""
    return [
        replace(rollouts[row.group * 4 + (row.sample + 1) % 4], group=row.group, sample=row.sample) for row in rollouts
    ]


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (without_proofs, RejectReason.PROOF_SHAPE),
        (forged_proofs, RejectReason.ACTIVATIONS),
        (samples_exchanged, RejectReason.ACTIVATIONS),
        (fake_logprobs, RejectReason.LOGPROBS),
    ],
)
async def test_cheats_are_rejected_by_name(tmp_path: Path, tamper: Any, reason: RejectReason) -> None:
    async with place(tmp_path) as pool:
        await pool.handed_in(tamper)
        outcome = await pool.outcome()
        assert outcome.state is SlotState.REJECTED
        assert outcome.verdict is not None
        assert outcome.verdict.reason is reason
        if reason is RejectReason.ACTIVATIONS:
            assert outcome.verdict.measured[SLASHABLE] == 1.0


async def test_work_of_an_older_version_is_compared_with_that_version(tmp_path: Path) -> None:
    """The validator keeps every version of the window: a lease of version 0 is honest when version 1 is out."""
    async with place(tmp_path) as pool:
        lease = await pool.crew.lease()
        assert lease is not None
        await publish_version(pool.trainer, POOL, tiny_policy(seed=1))
        assert pool.crew.sampler is not None
        rollouts = pool.crew.sampler.sample(lease, pool.crew.environment, POOL)
        await pool.crew.hand_in(lease, rollouts)
        assert (await pool.outcome()).state is SlotState.ACCEPTED


async def test_w3_work_of_an_older_version_under_a_lease_of_the_newest_is_rejected(tmp_path: Path) -> None:
    async with place(tmp_path) as pool:
        assert await pool.crew.lease() is not None
        old = pool.crew.sampler
        assert old is not None
        await publish_version(pool.trainer, POOL, tiny_policy(seed=1))
        pool.crew.sampler = None
        lease = await pool.crew.lease()
        assert lease is not None
        assert lease.policy_version == 1
        await pool.crew.hand_in(lease, old.sample(lease, pool.crew.environment, POOL))
        outcome = await pool.outcome(after=0)  # the slot of version 0 was given up by asking again
        assert outcome.state is SlotState.REJECTED
        assert outcome.verdict is not None
        assert outcome.verdict.reason is RejectReason.ACTIVATIONS
