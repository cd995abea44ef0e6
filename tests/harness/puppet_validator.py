"""A validator that the test scripts: it votes as it is told, with the true protocol and its own key."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.envs.base import Environment
from farflung.errors import Transient
from farflung.identity.keys import NodeKey
from farflung.identity.signing import sign
from farflung.validator.votes import SealedVotes
from farflung.wire.node import Heartbeat, Role
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import read_rollouts
from farflung.wire.submission import Assignment
from farflung.wire.verdict import EvidenceBundle, Judgement, Outcome, RejectReason, RewardResult, Verdict
from tiny_pool import description

Opinion = Callable[[Assignment], RejectReason | None]
"""None = accept."""


def claimed(rollout: Rollout) -> float:
    return rollout.claimed_reward


@dataclass
class Puppet:
    """It grades as honest ones do, and computes nothing again."""

    client: CoordinatorClient
    key: NodeKey
    pool: PoolSpec
    environment: Environment
    opinion: Opinion = lambda assignment: None
    copies_claims: bool = False
    """Gives the rewards that the file claims."""
    shows_votes: bool = True
    judged: list[Assignment] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.pool.trust != "open":
            self.client.sign_calls(self.key, self.pool.digest())
        self.votes = SealedVotes(self.key, signs=self.pool.trust != "open")

    async def work(self) -> None:
        """Until cancelled."""
        await self.client.heartbeat(
            Heartbeat(
                node=self.client.node,
                role=Role.VALIDATOR,
                policy_version=0,
                activity="judging",
                busy_s=0.0,
                idle_s=0.0,
                cpu_s=0.0,
            )
        )
        while True:
            try:
                await self.step(wait_s=1.0)
            except Transient:
                await asyncio.sleep(0.05)

    async def step(self, wait_s: float = 0.0) -> None:
        work = await self.client.work(8, wait_s=wait_s, held=self.votes.held)
        for digest in work.reveals if self.shows_votes else ():
            reveal = self.votes.shown(digest)
            if reveal is not None:
                await self._told(self.client.show(reveal))
                self.votes.forget(digest)
        for assignment in work.items:
            await self._judge(assignment)
        if not self.shows_votes:
            await asyncio.sleep(0.05)  # it is asked again and again

    async def _judge(self, assignment: Assignment) -> None:
        self.judged.append(assignment)
        judgement = await self._judgement(assignment)
        if assignment.is_sealed:
            await self._told(self.client.seal(self.votes.sealed(judgement)))
        else:
            await self._told(self.client.judge(judgement))

    async def _told(self, call: Awaitable[None]) -> None:
        with suppress(Refused):  # it lost its bond, or came too late
            await call

    async def _judgement(self, assignment: Assignment) -> Judgement:
        submission, reason = assignment.submission, self.opinion(assignment)
        rewards = () if reason else await self._rewards(assignment)
        evidence = EvidenceBundle(submission_digest=submission.digest(), rewards=rewards, detail=reason or "")
        verdict = Verdict(
            pool_digest=self.pool.digest(),
            submission_digest=submission.digest(),
            validator=self.client.node,
            outcome=Outcome.ACCEPTED if reason is None else reason.outcome,
            reason=reason,
            evidence_digest=evidence.digest(),
            rewards_digest=evidence.rewards_digest,
            judged_at_ms=1,
        )
        verdict = sign(verdict, self.key) if self.pool.trust != "open" else verdict
        return Judgement(verdict=verdict, evidence=evidence)

    async def _rewards(self, assignment: Assignment) -> tuple[RewardResult, ...]:
        data = await self.client.download(assignment.submission.file_key, self.pool.max_file_bytes)
        tasks = [self.environment.task("train", index) for index in assignment.lease.task_indices]
        results = []
        for row in read_rollouts(data, pool_digest=self.pool.digest()):
            grade = self.environment.grade(
                tasks[row.group], description().tokenizer.decode(row.completion_tokens.tolist())
            )
            reward = row.claimed_reward if self.copies_claims else grade.reward
            results.append(RewardResult(group=row.group, sample=row.sample, reward=reward, correct=grade.correct))
        return tuple(results)
