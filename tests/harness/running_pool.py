"""A running coordinator of a tiny pool, a crew that works for it step by step, and its history afterwards."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.patience import Patience
from farflung.broadcast.fetch import ChunkCache, PolicyFetcher
from farflung.broadcast.follow import PolicyFollower
from farflung.coordinator.config import CoordinatorConfig
from farflung.coordinator.journal import Published, decode
from farflung.coordinator.service import run as run_coordinator
from farflung.envs.base import Environment
from farflung.errors import Transient
from farflung.identity.keys import NodeKey, key_from_bytes
from farflung.identity.signing import sign
from farflung.state.event_log import SqlEventLog
from farflung.trainer.policy_base import PolicyBase
from farflung.trainer.publisher import Publisher
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Forfeit, Lease, LeaseRequest
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import EvidenceBundle, Judgement, Outcome, RejectReason, RewardResult, Verdict
from farflung.worker.sampler import WEIGHTS, Sampler
from tiny_pool import description, environment


def submission_for(lease: Lease, rollouts: Sequence[Rollout], data: bytes, file_key: str) -> Submission:
    return Submission(
        pool_digest=lease.pool_digest,
        node=lease.node,
        lease_id=lease.lease_id,
        slot=lease.slot,
        attempt=lease.attempt,
        policy_version=lease.policy_version,
        policy_digest=lease.policy_digest,
        file_key=file_key,
        file_digest=sha256_hex(data),
        file_bytes=len(data),
        num_rollouts=len(rollouts),
        num_tokens=sum(len(rollout.completion_tokens) for rollout in rollouts),
    )


TRAINER, COORDINATOR = key_from_bytes(b"\x07" * 32), key_from_bytes(b"\x0c" * 32)


@asynccontextmanager
async def coordinator(
    folder: Path,
    pool: PoolSpec,
    *,
    port: int = 0,
    tokens: Mapping[Role, str] | None = None,
    tls: ssl.SSLContext | None = None,
    **changes: Any,
) -> AsyncIterator[str]:
    """Its URL. Again in the same folder goes on from its log. Without tokens roles are believed."""
    values = {"store_url": str(folder / "store"), "database_url": f"sqlite:///{folder}/log.db", "sweep_s": 0.02}
    config = CoordinatorConfig(host="127.0.0.1", port=port, **(values | changes))
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        run_coordinator(
            config, pool, key=COORDINATOR, tokens=tokens, stop=stop, tls=tls, on_listening=listening.set_result
        )
    )
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    try:
        yield await listening
    finally:
        stop.set()
        await task


def publications(folder: Path) -> list[Publication]:
    """Every version that the coordinator of this folder ever took; it must not run."""
    log = SqlEventLog(f"sqlite:///{folder}/log.db")
    try:
        records = [decode(entry) for entry in log.replay()]
    finally:
        log.close()
    return [record.publication for record in records if isinstance(record, Published)]


def check_history(history: Sequence[Publication]) -> None:
    """Versions are consecutive, each links to the one before, and no slot was trained on twice."""
    trained: list[int] = []
    for version, publication in enumerate(history):
        manifest, batch = publication.manifest, publication.batch
        assert manifest.policy_version == version
        if version == 0:
            assert batch is None
            continue
        before = history[version - 1]
        assert batch is not None
        assert batch.policy_version == version
        assert manifest.previous_digest == before.manifest.digest()
        assert batch.previous_digest == ("" if before.batch is None else before.batch.digest())
        trained += [item.slot for item in batch.items]
    assert len(trained) == len(set(trained)), f"a slot was trained on twice: {trained}"


@dataclass
class Crew:
    """One worker and one validator in step, scripted by the test. Samples with the true engine and the true policy."""

    url: str
    pool: PoolSpec
    clients: AsyncExitStack
    node: str = "w"
    key: NodeKey | None = None
    """Who the worker is, in pools that are not open."""
    sampler: Sampler | None = None
    rewards: Callable[[int, int], float] = lambda group, sample: float(sample % 2)
    tamper: Callable[[list[Rollout]], Sequence[Rollout] | bytes] = lambda rollouts: rollouts
    """What is handed in instead of what was sampled; bytes = the file itself."""
    environment: Environment = field(default_factory=environment)
    submissions: dict[int, Submission] = field(default_factory=dict)

    async def client(self, role: Role, node: str) -> CoordinatorClient:
        return await self.clients.enter_async_context(CoordinatorClient(self.url, node=node, role=role))

    async def begin(self) -> None:
        self.worker = await self.client(Role.WORKER, self.node)
        if self.key is not None:
            self.worker.sign_calls(self.key, self.pool.digest())
            self.node = self.worker.node
        self.validator = await self.client(Role.VALIDATOR, "v")
        fetcher = PolicyFetcher(self.worker.get_chunk, ChunkCache(1 << 20))
        self.follower = PolicyFollower(fetcher, self._old_manifest, weights_name=WEIGHTS)

    async def _old_manifest(self, version: int) -> Manifest | None:
        try:
            return await self.worker.manifest(version)
        except Refused:
            return None

    async def another(self, node: str) -> "Crew":
        """Of the same pool, with a worker of another name."""
        made = Crew(self.url, self.pool, self.clients, node)
        await made.begin()
        return made

    async def give_back(self, lease: Lease) -> None:
        await self.worker.forfeit(Forfeit(node=self.node, lease_id=lease.lease_id))

    async def lease(self) -> Lease | None:
        """Of the newest version, whose weights are loaded."""
        version = -1 if self.sampler is None else self.sampler.policy_version
        manifest = await self.worker.latest_manifest(version, wait_s=0.0 if self.sampler else 10.0)
        if manifest is not None:
            fetched = await self.follower.fetch(manifest)
            if self.sampler is None:
                self.sampler = Sampler.from_policy(
                    fetched, self.pool, max_batch_rows=16, num_threads=1, should_stop=lambda: False
                )
            else:
                self.sampler.swap(fetched)
        assert self.sampler is not None
        request = LeaseRequest(
            node=self.node, policy_version=self.sampler.policy_version, policy_digest=self.sampler.policy_digest
        )
        return await self.worker.lease(request, wait_s=0.05)

    async def submit(self) -> Submission | None:
        """Sample one slot and hand it in; None when there is none to be had."""
        lease = await self.lease()
        if lease is None:
            return None
        assert self.sampler is not None
        return await self.hand_in(lease, self.sampler.sample(lease, self.environment, self.pool))

    async def hand_in(self, lease: Lease, rollouts: list[Rollout]) -> Submission:
        """What was sampled, tampered with or not."""
        changed = self.tamper(rollouts)
        data = changed if isinstance(changed, bytes) else write_rollouts(changed, self.pool.digest())
        ticket = await self.worker.ticket(lease.lease_id)
        await self.worker.upload(ticket, data)
        claimed = rollouts if isinstance(changed, bytes) else changed
        submission = submission_for(lease, claimed, data, ticket.key)
        if self.key is not None:
            submission = sign(submission, self.key)
        await self.worker.submit(submission)
        self.submissions[submission.slot] = submission
        return submission

    async def judge(self, submission: Submission, reason: RejectReason | None = None) -> None:
        size, num_groups = self.pool.group_size, self.pool.groups_per_slot
        rewards = tuple(
            RewardResult(group=group, sample=sample, reward=value, correct=value)
            for group in range(num_groups)
            for sample in range(size)
            for value in (self.rewards(group, sample),)
        )
        evidence = EvidenceBundle(submission_digest=submission.digest(), rewards=() if reason else rewards)
        verdict = Verdict(
            pool_digest=self.pool.digest(),
            submission_digest=submission.digest(),
            validator="v",
            outcome=Outcome.ACCEPTED if reason is None else reason.outcome,
            reason=reason,
            evidence_digest=evidence.digest(),
            judged_at_ms=0,
        )
        await self.validator.assignments(64)
        await self.validator.judge(Judgement(verdict=verdict, evidence=evidence))

    async def deliver(self, count: int, reason: RejectReason | None = None) -> list[int]:
        """Accepted (or rejected) slots."""
        slots: list[int] = []
        while len(slots) < count:
            submission = await self.submit()
            if submission is not None:
                await self.judge(submission, reason)
                slots.append(submission.slot)
        return slots

    async def work(self) -> None:
        """Until cancelled or until the run is over; through restarts of the coordinator."""
        while not self.worker.is_finished:
            try:
                submission = await self.submit()
                if submission is not None:
                    await self.judge(submission)
            except Transient:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def crew(url: str, pool: PoolSpec, key: NodeKey | None = None) -> AsyncIterator[Crew]:
    async with AsyncExitStack() as clients:
        made = Crew(url, pool, clients, key=key)
        await made.begin()
        yield made


@asynccontextmanager
async def working(made: Crew) -> AsyncIterator[None]:
    """The crew works in the background."""
    task = asyncio.create_task(made.work())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Let others run until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def publish_version(client: CoordinatorClient, pool: PoolSpec, policy: PolicyBase) -> Publication:
    """The next version, made from no batch."""
    files = {**description().policy_files, **policy.config_files}
    publisher = Publisher(client, Patience(asyncio.Event(), 5.0), pool, files, 1024, key=TRAINER)
    publisher.last = await client.last_publication()
    publication, prepared = publisher.prepare(
        policy,
        optimizer_step=publisher.policy_version + 1,
        now_ms=0,
        items=() if publisher.last else None,
        drops=(),
    )
    await publisher.send(publication, prepared)
    return publication
