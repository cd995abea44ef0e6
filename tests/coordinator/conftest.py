"""A coordinator on a random loopback port, and what its callers hand in."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from farflung.api.client import CoordinatorClient
from farflung.coordinator.clock import wall_clock_ms
from farflung.coordinator.config import CoordinatorConfig
from farflung.coordinator.service import run
from farflung.identity.keys import NodeKey, key_from_bytes
from farflung.identity.signing import Signable, sign
from farflung.wire.batch import BatchItem, BatchRecord, SlotDrop, SlotOutcome
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.manifest import Chunk, Manifest, ManifestFile, Publication, policy_digest
from farflung.wire.node import Role
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.proof import DEFAULT_RULES
from farflung.wire.submission import Assignment, Submission
from farflung.wire.verdict import EvidenceBundle, Judgement, Outcome, RejectReason, RewardResult, Verdict

TOKENS = {Role.TRAINER: "trainer-" + "t" * 32, Role.VALIDATOR: "validator-" + "v" * 32}
FAST = {"host": "127.0.0.1", "port": 0, "sweep_s": 0.02}


def pool_spec(**changes: Any) -> PoolSpec:
    values = {
        "name": "test",
        "environment": EnvironmentSpec(name="sort-digits", num_tasks=100, target_lengths=(4, 8)),
        "tokenizer_digest": sha256_hex(b"t"),
        "model_config_digest": sha256_hex(b"m"),
        "group_size": 2,
        "groups_per_slot": 2,
        "groups_per_batch": 4,
        "max_staleness": 1,
        "max_outstanding_groups": 8,
        "temperature": 1.0,
        "max_prompt_tokens": 16,
        "max_completion_tokens": 16,
        "lease_s": 30.0,
        "max_attempts": 3,
        "max_file_bytes": 1 << 16,
    }
    if changes.get("trust") == "proven":
        values["proofs"] = DEFAULT_RULES
    return PoolSpec(**(values | changes))


TRAINER = key_from_bytes(b"\x07" * 32)


def version_file(version: int) -> bytes:
    """The one file of a version; its first chunk is the same in all versions."""
    return b"config" * 10 + b"weights %d " % version * 10


def manifest_of(spec: PoolSpec, version: int, previous: Manifest | None) -> Manifest:
    data = version_file(version)
    pieces = (data[:60], data[60:])
    chunks = tuple(
        Chunk(index=index, num_bytes=len(piece), sha256=sha256_hex(piece)) for index, piece in enumerate(pieces)
    )
    files = (ManifestFile(name="model.safetensors", num_bytes=len(data), sha256=sha256_hex(data), chunks=chunks),)
    manifest = Manifest(
        pool_digest=spec.digest(),
        policy_version=version,
        policy_digest=policy_digest(files),
        optimizer_step=version,
        files=files,
        tensors=(),
        published_at_ms=0,
        expires_at_ms=1,
        previous_digest="" if previous is None else previous.digest(),
    )
    return signed(manifest)


def signed(record: Signable) -> Signable:
    """By the trainer."""
    return sign(record, TRAINER)


def rollout_file(lease: Lease) -> bytes:
    return f"rollouts of {lease.lease_id} by {lease.node}".encode()


def submission_of(spec: PoolSpec, lease: Lease, file_key: str) -> Submission:
    data = rollout_file(lease)
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
        num_rollouts=spec.groups_per_slot * spec.group_size,
        num_tokens=20,
    )


def judgement_on(
    spec: PoolSpec, submission: Submission, validator: str, reason: RejectReason | None = None
) -> Judgement:
    rewards = tuple(
        RewardResult(group=group, sample=sample, reward=float(sample))
        for group in range(spec.groups_per_slot)
        for sample in range(spec.group_size)
    )
    evidence = EvidenceBundle(
        submission_digest=submission.digest(), rewards=() if reason else rewards, detail=reason or ""
    )
    verdict = Verdict(
        pool_digest=spec.digest(),
        submission_digest=submission.digest(),
        validator=validator,
        outcome=Outcome.ACCEPTED if reason is None else reason.outcome,
        reason=reason,
        evidence_digest=evidence.digest(),
        judged_at_ms=0,
    )
    return Judgement(verdict=verdict, evidence=evidence)


def publication_of(
    spec: PoolSpec,
    last: Publication | None,
    taken: Sequence[SlotOutcome] = (),
    drops: Sequence[SlotDrop] = (),
) -> Publication:
    version = 0 if last is None else last.manifest.policy_version + 1
    manifest = manifest_of(spec, version, last.manifest if last else None)
    if last is None:
        return Publication(manifest=manifest)
    items = []
    for outcome in taken:
        assert outcome.submission is not None
        item = BatchItem(
            slot=outcome.slot,
            submission_digest=outcome.submission.digest(),
            file_digest=outcome.submission.file_digest,
            policy_version=outcome.policy_version,
            groups_trained=(0, 1),
        )
        items.append(item)
    batch = BatchRecord(
        pool_digest=spec.digest(),
        policy_version=version,
        optimizer_step=version,
        items=tuple(items),
        drops=tuple(drops),
        previous_digest="" if last.batch is None else last.batch.digest(),
    )
    return Publication(manifest=manifest, batch=signed(batch))


@dataclass
class Clock:
    """Time that tests can let pass."""

    ahead_ms: int = 0
    jump_ms: int = 0
    """By which the wall clock alone is off."""

    def wall_ms(self) -> int:
        return wall_clock_ms() + self.ahead_ms + self.jump_ms

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead_ms / 1000


@dataclass
class Pool:
    """A running coordinator seen from outside, with clients by role and node."""

    spec: PoolSpec
    url: str
    folder: Path
    clock: Clock
    clients: AsyncExitStack
    opened: dict[tuple[Role, str], CoordinatorClient] = field(default_factory=dict)

    async def client(self, role: Role, node: str) -> CoordinatorClient:
        if (role, node) not in self.opened:
            made = CoordinatorClient(self.url, node=node, role=role, token=TOKENS.get(role))
            self.opened[role, node] = await self.clients.enter_async_context(made)
        return self.opened[role, node]

    async def worker(self, node: str = "w1") -> CoordinatorClient:
        return await self.client(Role.WORKER, node)

    async def validator(self, node: str = "v1") -> CoordinatorClient:
        return await self.client(Role.VALIDATOR, node)

    async def trainer(self) -> CoordinatorClient:
        return await self.client(Role.TRAINER, "trainer")

    async def store_chunks(self, manifest: Manifest) -> None:
        trainer = await self.trainer()
        data = version_file(manifest.policy_version)
        for piece in (data[:60], data[60:]):
            await trainer.put_chunk(sha256_hex(piece), piece)

    async def publish(self, taken: Sequence[SlotOutcome] = (), drops: Sequence[SlotDrop] = ()) -> Publication:
        """Publish the next version."""
        trainer = await self.trainer()
        publication = publication_of(self.spec, await trainer.last_publication(), taken, drops)
        await self.store_chunks(publication.manifest)
        await trainer.publish(publication)
        return publication

    async def lease(self, node: str = "w1", wait_s: float = 0.0, version: int | None = None) -> Lease | None:
        worker = await self.worker(node)
        manifest = await (worker.latest_manifest() if version is None else worker.manifest(version))
        assert manifest is not None
        request = LeaseRequest(node=node, policy_version=manifest.policy_version, policy_digest=manifest.policy_digest)
        return await worker.lease(request, wait_s)

    async def leased(self, node: str = "w1") -> Lease:
        lease = await self.lease(node)
        assert lease is not None
        return lease

    async def uploaded(self, lease: Lease) -> Submission:
        """Upload the file of a lease; returns the submission for it, not yet handed in."""
        worker = await self.worker(lease.node)
        ticket = await worker.ticket(lease.lease_id)
        await worker.upload(ticket, rollout_file(lease))
        return submission_of(self.spec, lease, ticket.key)

    async def submitted(self, node: str = "w1") -> Submission:
        submission = await self.uploaded(await self.leased(node))
        await (await self.worker(node)).submit(submission)
        return submission

    async def judged(self, submission: Submission, reason: RejectReason | None = None) -> None:
        validator = await self.validator()
        await validator.assignments(64)
        await validator.judge(judgement_on(self.spec, submission, "v1", reason))

    async def accepted(self, node: str = "w1") -> Submission:
        submission = await self.submitted(node)
        await self.judged(submission)
        return submission

    async def assigned(self, node: str = "v1", max_count: int = 10, **rest: Any) -> list[Assignment]:
        return await (await self.validator(node)).assignments(max_count, **rest)


def config_for(folder: Path, **changes: Any) -> CoordinatorConfig:
    values = {**FAST, "store_url": str(folder / "store"), "database_url": f"sqlite:///{folder}/log.db"}
    return CoordinatorConfig(**(values | changes))


@asynccontextmanager
async def running(
    folder: Path,
    spec: PoolSpec | None = None,
    *,
    clock: Clock | None = None,
    key: NodeKey | None = None,
    tokens: Mapping[Role, str] | None = TOKENS,
    **changes: Any,
) -> AsyncIterator[Pool]:
    spec, clock, stop = spec or pool_spec(), clock or Clock(), asyncio.Event()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        run(
            config_for(folder, **changes),
            spec,
            key=key,
            tokens=tokens,
            stop=stop,
            on_listening=listening.set_result,
            wall_ms=clock.wall_ms,
            monotonic_s=clock.monotonic_s,
        )
    )
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    async with AsyncExitStack() as clients:
        yield Pool(spec=spec, url=await listening, folder=folder, clock=clock, clients=clients)
    stop.set()
    await task


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    """A running coordinator with version 0 published."""
    async with running(tmp_path) as pool:
        await pool.publish()
        yield pool


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Any]:
    """`start(spec, **config)`: a coordinator in this test's folder; again in the same folder goes on from its log."""

    def starter(spec: PoolSpec | None = None, **changes: Any) -> Any:
        return running(tmp_path, spec, **changes)

    return starter


@pytest.fixture
def build() -> Any:
    """The builders of this file, for tests that need records without a coordinator."""

    class Builders:
        pool_spec = staticmethod(pool_spec)
        manifest_of = staticmethod(manifest_of)
        signed = staticmethod(signed)
        publication_of = staticmethod(publication_of)
        submission_of = staticmethod(submission_of)
        judgement_on = staticmethod(judgement_on)
        config_for = staticmethod(config_for)
        rollout_file = staticmethod(rollout_file)
        tokens = TOKENS
        trainer = TRAINER
        version_file = staticmethod(version_file)
        clock = Clock

        @staticmethod
        def pool(spec: PoolSpec, url: str, folder: Path) -> Pool:
            """For a coordinator that the test started itself; `async with pool.clients`."""
            return Pool(spec=spec, url=url, folder=folder, clock=Clock(), clients=AsyncExitStack())

    return Builders
