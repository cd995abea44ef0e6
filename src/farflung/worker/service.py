"""The role that samples: version -> lease -> rollouts -> file -> submission, again and again.

It owns nothing that matters: killed at any moment, its lease expires and the slot goes to somebody else.
"""

import asyncio
import logging
import os
import platform
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.patience import Patience, Stopped
from farflung.api.presence import heartbeats
from farflung.broadcast.fetch import ChunkBytes, ChunkCache, GetChunk, PolicyFetcher
from farflung.broadcast.fetched import FetchedPolicy
from farflung.broadcast.follow import PolicyFollower
from farflung.broadcast.on_disk import kept_on
from farflung.broadcast.pool_sources import PoolSources
from farflung.broadcast.servers import Servers
from farflung.broadcast.shelf import Shelf
from farflung.broadcast.trust import Guard, ManifestTrust
from farflung.broadcast.watch import PolicyWatch
from farflung.engine.base import Cancelled
from farflung.envs.base import Environment
from farflung.envs.registry import load_for_pool
from farflung.errors import FarflungError, Transient
from farflung.identity.keys import NodeKey, key_of
from farflung.identity.signing import Signable, sign
from farflung.model.determinism import FIXED_BATCH_ROWS, compute_deterministically
from farflung.model.devices import find_device
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.heartbeat import Vitals
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Forfeit, Lease, LeaseRequest
from farflung.wire.manifest import Manifest
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Submission
from farflung.worker.config import WorkerConfig
from farflung.worker.pace import Pace
from farflung.worker.sampler import WEIGHTS, Sampler, Unworkable

logger = logging.getLogger(__name__)

CHUNK_CACHE_BYTES = 64 << 20
"""Chunks of earlier versions that are kept because the next may share them: tokenizer and config, seldom weights."""
RETRY_S = 1.0
"""Until the next look, when a version is old or out of reach."""


async def run(
    config: WorkerConfig,
    *,
    url: str,
    stop: asyncio.Event,
    tls: ssl.SSLContext | None = None,
    activity: ActivityClock | None = None,
) -> None:
    """Sample until the run is finished or `stop` is set.

    Args:
        tls: how https servers are checked; None = as the system does it.
        activity: the worker's own account of its time, for a caller who wants to record it.

    Raises:
        Transient: the coordinator was away for longer than `config.unreachable_s`.
    """
    node = config.node or f"{platform.node()}-{os.getpid()}"
    key = key_of(config.key_file)
    activity = activity or ActivityClock(time.monotonic)
    async with (
        CoordinatorClient(url, node=node, role=Role.WORKER, tls=tls) as client,
        Servers(tls=tls) as relays,
    ):
        patience = Patience(stop, config.unreachable_s)
        with suppress(Stopped):
            pool = await patience(client.pool)
            if pool.trust != "open":
                client.sign_calls(key, pool.digest())
            if pool.is_deterministic:
                compute_deterministically()
            logger.info("worker %s samples as %s for pool %s at %s", node, client.node, pool.name, url)
            vitals = Vitals(client.node, Role.WORKER, activity)
            async with heartbeats(client, vitals, config.heartbeat_s):
                worker = Worker(config, client, relays, patience, pool, activity, vitals, stop, key)
                await worker.run()
    logger.info("worker %s stops", node)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class SampledSlot:
    """The rollouts of one lease."""

    lease: Lease
    rollouts: Sequence[Rollout]

    @property
    def num_tokens(self) -> int:
        return sum(len(rollout.completion_tokens) for rollout in self.rollouts)


class Worker:
    """One node's loop. `run` is its one screen; the rest are its steps."""

    def __init__(
        self,
        config: WorkerConfig,
        client: CoordinatorClient,
        relays: Servers,
        patience: Patience,
        pool: PoolSpec,
        activity: ActivityClock,
        vitals: Vitals,
        stop: asyncio.Event,
        key: NodeKey,
    ) -> None:
        self._key = key
        self._config = config
        self._client = client
        self._patience = patience
        self._pool = pool
        self._pool_digest = pool.digest()
        self._environment: Environment = load_for_pool(pool.environment)
        self._activity = activity
        self._vitals = vitals
        self._stop = stop
        self._pace = Pace(pool, config.capability_class)
        self._sampler: Sampler | None = None
        self._sampling_s = 0.0
        trust = ManifestTrust(trainer=config.trainer or pool.trainer, pool_digest=self._pool_digest)
        self._guard = Guard(trust, report=vitals.set_alarm)
        self._sources = PoolSources(client.url, client.get_chunk, client.relays, relays.chunk, time.monotonic)
        get_chunk: GetChunk = self._get_chunk
        if config.cache_folder:
            get_chunk = kept_on(Shelf(Path(config.cache_folder), config.max_cache_bytes), get_chunk)
        self._fetcher = PolicyFetcher(get_chunk, ChunkCache(CHUNK_CACHE_BYTES))
        self._follower = PolicyFollower(
            self._fetcher, self._old_manifest, weights_name=WEIGHTS, on_fault=self._guard.fault
        )
        self._watch = PolicyWatch(self._next_manifest, self._follower.fetch, pause_s=RETRY_S)

    async def run(self) -> None:
        watching = asyncio.create_task(self._watch.run())
        try:
            while not self._client.is_finished:
                sampler = await self._newest_sampler()
                if self._pool.is_deterministic:
                    watching.cancel()  # leases say which versions, in their order; a newer one held would be in the way
                lease = await self._lease(sampler)
                if lease is not None:
                    await self._work_on(lease, sampler)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self._sources.log_totals()

    async def _get_chunk(self, sha256: str, num_bytes: int) -> ChunkBytes:
        try:
            return await self._sources.get_chunk(sha256, num_bytes)
        except Refused as refusal:  # collected, because newer versions are out by now
            raise Transient(str(refusal)) from refusal

    async def _next_manifest(self, newer_than: int) -> Manifest | None:
        if self._client.is_finished:
            raise Stopped("the run is over")
        manifest = await self._patience(lambda: self._client.latest_manifest(newer_than, wait_s=self._config.poll_s))
        if manifest is None or self._guard.admits(manifest, int(time.time() * 1000)):
            return manifest
        await self._patience.sleep(RETRY_S)
        return None

    async def _old_manifest(self, version: int) -> Manifest | None:
        try:
            return await self._patience(lambda: self._client.manifest(version))
        except Refused:
            return None

    async def _newest_sampler(self) -> Sampler:
        """The sampler with the newest fetched version loaded; waits for the first one only.

        In deterministic mode only the first one: later ones are loaded as leases name them.
        """
        if self._sampler is not None and self._pool.is_deterministic:
            return self._sampler
        version = -1 if self._sampler is None else self._sampler.policy_version
        fetched: FetchedPolicy | None = self._watch.peek(version)
        if fetched is None and self._sampler is None:
            with self._activity.waiting("first policy"):
                fetched = await self._patience.unless_stopped(self._watch.newer_than(-1))
        if fetched is not None:
            await self._load_fetched(fetched)
        assert self._sampler is not None
        return self._sampler

    async def _load_version(self, version: int) -> None:
        """The one that a lease is for, where it is not the loaded one: in deterministic mode."""
        with self._activity.waiting("policy"):
            try:
                manifest = await self._patience(lambda: self._client.manifest(version))
            except Refused as refusal:
                await self._patience.sleep(RETRY_S)
                raise Unworkable(f"version {version} is out of reach: {refusal}") from refusal
            if not self._guard.admits_named(manifest, version):
                await self._patience.sleep(RETRY_S)
                raise Unworkable(f"the manifest of version {version} is not to be believed")
            fetched = await self._patience(lambda: self._follower.fetch(manifest))
        await self._load_fetched(fetched)

    async def _load_fetched(self, fetched: FetchedPolicy) -> None:
        with self._activity.busy("loading weights"):
            self._sampler = await asyncio.to_thread(self._load, fetched)
        if self._sampler.base_sha256:
            self._fetcher.hold(self._sampler.base_sha256)
        self._vitals.set_policy_version(fetched.manifest.policy_version)

    def _load(self, fetched: FetchedPolicy) -> Sampler:
        if self._sampler is None:
            return Sampler.from_policy(
                fetched,
                self._pool,
                max_batch_rows=FIXED_BATCH_ROWS if self._pool.is_deterministic else self._config.max_batch_rows,
                num_threads=1 if self._pool.is_deterministic else self._config.num_threads,
                device=find_device(self._config.device, "worker.device"),
                should_stop=self._stop.is_set,
            )
        self._sampler.swap(fetched)
        return self._sampler

    async def _lease(self, sampler: Sampler) -> Lease | None:
        """A slot of the loaded version (in deterministic mode of any); None as soon as a newer version is out."""
        request = LeaseRequest(
            node=self._client.node,
            policy_version=sampler.policy_version,
            policy_digest=sampler.policy_digest,
            capability_class=self._pace.capability_class(),
        )
        with self._activity.waiting("lease"):
            lease = await self._patience(lambda: self._client.lease(request, wait_s=self._config.poll_s))
            if lease is None and not self._client.is_finished:
                # Either nothing was to be had within the poll, or the version is old: look for a newer one first.
                with suppress(TimeoutError):
                    newer = self._watch.newer_than(sampler.policy_version)
                    await self._patience.unless_stopped(asyncio.wait_for(newer, timeout=RETRY_S))
        return lease

    async def _work_on(self, lease: Lease, sampler: Sampler) -> None:
        """Sample a slot and hand it in; whatever goes wrong, the lease is given back or runs out."""
        if self._pool.capability_classes:
            self._vitals.set_capability_class(lease.capability_class)
        try:
            if lease.policy_version != sampler.policy_version:
                await self._load_version(lease.policy_version)
            with self._activity.busy("sampling"):
                started_s = time.monotonic()
                slot = await asyncio.to_thread(self._sample, lease, sampler)
                await self._throttle()
                self._pace.observe(lease, time.monotonic() - started_s)
            with self._activity.busy("submitting"):
                await self._hand_in(slot)
        except Refused as refusal:
            logger.warning("slot %d is lost: %s", lease.slot, refusal)
        except Unworkable as problem:
            logger.warning("slot %d is given back: %s", lease.slot, problem)
            await self._give_back(lease, "unworkable")
        except (Cancelled, Stopped):
            await self._give_back(lease, "stopping")
            raise Stopped("asked to stop") from None

    def _sample(self, lease: Lease, sampler: Sampler) -> SampledSlot:
        started_s = time.monotonic()
        rollouts = sampler.sample(lease, self._environment, self._pool)
        self._sampling_s = time.monotonic() - started_s
        return SampledSlot(lease=lease, rollouts=rollouts)

    async def _throttle(self) -> None:
        """A slow machine, for tests and demonstrations: sleeps in proportion to the work."""
        pause_s = self._sampling_s * (1.0 / self._config.speed - 1.0)
        if pause_s > 0:
            await self._patience.sleep(pause_s)

    async def _hand_in(self, slot: SampledSlot) -> None:
        """File first, then the signed claim; the receipt makes it durable."""
        lease = slot.lease
        data = await asyncio.to_thread(write_rollouts, slot.rollouts, self._pool_digest)
        ticket = await self._patience(lambda: self._client.ticket(lease.lease_id))
        await self._patience(lambda: self._client.upload(ticket, data))
        submission = Submission(
            pool_digest=self._pool_digest,
            node=self._client.node,
            lease_id=lease.lease_id,
            slot=lease.slot,
            attempt=lease.attempt,
            policy_version=lease.policy_version,
            policy_digest=lease.policy_digest,
            file_key=ticket.key,
            file_digest=sha256_hex(data),
            file_bytes=len(data),
            num_rollouts=len(slot.rollouts),
            num_tokens=slot.num_tokens,
        )
        await self._patience(lambda: self._client.submit(self._signed(submission)))
        self._vitals.add_tokens(slot.num_tokens)

    def _signed(self, record: Signable) -> Signable:
        """As what this node answers for, where a node is its key."""
        return record if self._pool.trust == "open" else sign(record, self._key)

    async def _give_back(self, lease: Lease, reason: str) -> None:
        try:
            forfeit = Forfeit(node=self._client.node, lease_id=lease.lease_id, reason=reason)
            await self._client.forfeit(self._signed(forfeit))
        except FarflungError as error:
            logger.info("lease %s runs out by itself: %s", lease.lease_id, error)
