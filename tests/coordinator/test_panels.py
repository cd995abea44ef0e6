"""Several validators on each submission, at a running coordinator: draw, sealed votes, decision, what is recorded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from farflung.api.errors import Refused
from farflung.wire.check_rules import CheckRules
from farflung.wire.node import Heartbeat, Role
from farflung.wire.panel import Commitment, Reveal, seal
from farflung.wire.submission import Submission
from farflung.wire.verdict import Judgement, RejectReason, SlotState

SALT = "ab" * 32
VALIDATORS = ("v1", "v2", "v3")
RULES = CheckRules(validators_per_submission=3, quorum=2)


@pytest.fixture
def panels(start: Any, build: Any) -> Any:
    """A running pool of this kind with version 0, and validators that are there."""

    @asynccontextmanager
    async def starter(*validators: str, rules: CheckRules = RULES, **changes: Any) -> AsyncIterator[Any]:
        async with start(build.pool_spec(checks=rules), **changes) as pool:
            await pool.publish()
            for name in validators or VALIDATORS:
                await beat(pool, name)
                await pool.assigned(name)  # there is nothing yet, and now it is known to be ready
            yield pool

    return starter


async def beat(pool: Any, name: str) -> None:
    heartbeat = Heartbeat(
        node=name, role=Role.VALIDATOR, policy_version=0, activity="judging", busy_s=0.0, idle_s=0.0, cpu_s=0.0
    )
    await (await pool.validator(name)).heartbeat(heartbeat)


def judgement_of(pool: Any, build: Any, submission: Submission, name: str, reason: RejectReason | None) -> Judgement:
    judgement: Judgement = build.judgement_on(pool.spec, submission, name, reason)
    if reason is not None:
        return judgement
    verdict = replace(judgement.verdict, rewards_digest=judgement.evidence.rewards_digest)
    return replace(judgement, verdict=verdict)


async def commit(pool: Any, judgement: Judgement) -> None:
    verdict = judgement.verdict
    sealed = seal(verdict.submission_digest, verdict.validator, verdict.outcome, verdict.rewards_digest, SALT)
    commitment = Commitment(
        pool_digest=verdict.pool_digest,
        submission_digest=verdict.submission_digest,
        validator=verdict.validator,
        sealed=sealed,
    )
    await (await pool.validator(verdict.validator)).seal(commitment)


async def show(pool: Any, judgement: Judgement) -> None:
    await (await pool.validator(judgement.verdict.validator)).show(Reveal(judgement=judgement, salt=SALT))


async def vote(pool: Any, build: Any, submission: Submission, **reasons: RejectReason | None) -> None:
    """All commit, then all show."""
    judgements = [judgement_of(pool, build, submission, name, reason) for name, reason in reasons.items()]
    for judgement in judgements:
        assert await pool.assigned(judgement.verdict.validator)
        await commit(pool, judgement)
    for judgement in judgements:
        await show(pool, judgement)


async def outcome_of(pool: Any) -> Any:
    (outcome,) = await (await pool.trainer()).outcomes(wait_s=5)
    return outcome


async def test_three_are_drawn_commit_show_and_agree(panels: Any, build: Any) -> None:
    async with panels("v1", "v2", "v3", "v4") as pool:
        submission = await pool.submitted()
        given = {name: await pool.assigned(name) for name in ("v1", "v2", "v3", "v4")}
        drawn = [name for name, items in given.items() if items]
        assert len(drawn) == 3
        assert all(items[0].is_sealed and items[0].submission == submission for items in given.values() if items)
        await vote(pool, build, submission, **dict.fromkeys(drawn))
        outcome = await outcome_of(pool)
        assert (outcome.state, outcome.verdict.outcome) == (SlotState.ACCEPTED, "accepted")


async def test_v1_a_false_reject_by_one_of_three_changes_nothing_and_costs_its_bond(panels: Any, build: Any) -> None:
    async with panels("v1", "v2", "v3", "v4") as pool:
        submission = await pool.submitted()
        drawn = [name for name in ("v1", "v2", "v3", "v4") if await pool.assigned(name)]
        await vote(pool, build, submission, **{**dict.fromkeys(drawn), drawn[0]: RejectReason.TOKEN_RANGE})
        assert (await outcome_of(pool)).state is SlotState.ACCEPTED
        assert (await (await pool.trainer()).status()).faults == {"false_reject": 1}
        await pool.submitted("w2")
        others = {"v1", "v2", "v3", "v4"} - {drawn[0]}
        assert await pool.assigned(drawn[0]) == []
        assert all([await pool.assigned(name) for name in others])


async def test_votes_are_not_taken_before_all_have_committed(panels: Any, build: Any) -> None:
    async with panels() as pool:
        submission = await pool.submitted()
        judgements = [judgement_of(pool, build, submission, name, None) for name in VALIDATORS]
        for name in VALIDATORS:
            await pool.assigned(name)
        await commit(pool, judgements[0])
        with pytest.raises(Refused, match="may still commit"):
            await show(pool, judgements[0])
        with pytest.raises(Refused, match="commit first"):
            await (await pool.validator("v1")).judge(judgements[0])
        for judgement in judgements:
            await commit(pool, judgement)  # the first again, which is no error
        held = [submission.digest()]
        work = await (await pool.validator("v1")).work(5, held=held)
        assert (work.items, work.reveals) == ((), (submission.digest(),))
        other = judgement_of(pool, build, submission, "v1", RejectReason.SCHEMA)
        with pytest.raises(Refused, match="another vote"):
            await show(pool, other)


async def test_who_does_not_show_its_vote_is_not_waited_for_for_ever(panels: Any, build: Any) -> None:
    clock = build.clock()
    async with panels(clock=clock, judge_s=10) as pool:
        submission = await pool.submitted()
        judgements = [judgement_of(pool, build, submission, name, None) for name in VALIDATORS]
        for judgement in judgements:
            await pool.assigned(judgement.verdict.validator)
            await commit(pool, judgement)
        for judgement in judgements[:2]:
            await show(pool, judgement)
        assert await (await pool.trainer()).outcomes() == []
        clock.ahead_ms += 10_001
        assert (await outcome_of(pool)).state is SlotState.ACCEPTED


async def test_a_panel_without_a_quorum_is_followed_by_another_and_in_the_end_the_work_is_expired_not_rejected(
    panels: Any, build: Any
) -> None:
    async with panels(max_judgings=2) as pool:
        submission = await pool.submitted()
        for _ in range(2):
            await vote(pool, build, submission, v1=None, v2=RejectReason.SCHEMA, v3=RejectReason.VALIDATOR_FAULT)
        outcome = await outcome_of(pool)
        assert outcome.state is SlotState.EXPIRED
        status = await (await pool.trainer()).status()
        assert status.drops == {"validator_fault": 2}


async def test_nobody_is_drawn_before_there_are_enough_and_a_quorum_is_enough_in_the_end(
    panels: Any, build: Any
) -> None:
    clock = build.clock()
    async with panels("v1", "v2", clock=clock, judge_s=10, silent_after_s=60) as pool:
        submission = await pool.submitted()
        assert await pool.assigned("v1") == []
        clock.ahead_ms += 10_001
        for name in ("v1", "v2"):
            await beat(pool, name)
        await vote(pool, build, submission, v1=None, v2=None)
        assert (await outcome_of(pool)).state is SlotState.ACCEPTED


async def test_a_restart_in_the_middle_of_a_vote_loses_nothing(panels: Any, start: Any, build: Any) -> None:
    async with panels() as pool:
        submission = await pool.submitted()
        judgements = [judgement_of(pool, build, submission, name, None) for name in VALIDATORS]
        for judgement in judgements[:2]:
            await pool.assigned(judgement.verdict.validator)
            await commit(pool, judgement)
    async with start(build.pool_spec(checks=RULES)) as pool:
        await asyncio.sleep(0.1)
        await commit(pool, judgements[2])
        for judgement in judgements:
            await show(pool, judgement)
        assert (await outcome_of(pool)).state is SlotState.ACCEPTED


async def test_who_has_not_asked_for_work_is_not_drawn(panels: Any, build: Any) -> None:
    """It is alive, and perhaps still loading: it must not be late because of that."""
    async with panels() as pool:
        for name in ("v4", "v5", "v6"):
            await beat(pool, name)
        submission = await pool.submitted()
        await vote(pool, build, submission, v1=None, v2=None, v3=None)
        assert (await outcome_of(pool)).state is SlotState.ACCEPTED
