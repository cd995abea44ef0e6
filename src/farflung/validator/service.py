"""The role that checks: assignment -> file and evidence -> verdict, again and again."""

import asyncio
import json
import logging
import os
import platform
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.patience import Patience, Stopped
from farflung.api.presence import heartbeats
from farflung.broadcast.fetch import ChunkCache, PolicyFetcher
from farflung.broadcast.pool_sources import PoolSources
from farflung.broadcast.servers import Servers
from farflung.broadcast.trust import Guard, ManifestTrust
from farflung.errors import OurFault, PeerFault
from farflung.identity.keys import NodeKey, key_of
from farflung.identity.signing import sign
from farflung.model.any_config import read_config
from farflung.model.description import CONFIG_FILE
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.heartbeat import Vitals
from farflung.validator.config import ValidatorConfig
from farflung.validator.evidence import POLICY_FILES, own_fault
from farflung.validator.fault_watch import FaultWatch
from farflung.validator.judging_process import JudgingProcess
from farflung.validator.votes import SealedVotes
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.wire.submission import Assignment
from farflung.wire.verdict import GRADING_FAULT, Judgement, Outcome

if TYPE_CHECKING:
    from farflung.validator.recomputing import Recomputing

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

FILE_CACHE_BYTES = 64 << 20
RETRY_S = 1.0
"""Until the next look, when a version is out of reach."""


async def run(
    config: ValidatorConfig,
    *,
    url: str,
    stop: asyncio.Event,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    activity: ActivityClock | None = None,
) -> None:
    """Judge until the run is finished or `stop` is set.

    Args:
        token: the pool's secret for validators.
        tls: how https servers are checked; None = as the system does it.
        activity: the validator's own account of its time, for a caller who wants to record it.

    Raises:
        UserError: the environment is not there, or cannot grade anything (`validator.fault_watch`).
        Transient: the coordinator was away for longer than `config.unreachable_s`.
    """
    node = config.node or f"{platform.node()}-{os.getpid()}"
    key = key_of(config.key_file)
    activity = activity or ActivityClock(time.monotonic)
    spent = Spent()
    async with (
        CoordinatorClient(url, node=node, role=Role.VALIDATOR, token=token, tls=tls) as client,
        Servers(tls=tls) as relays,
    ):
        patience = Patience(stop, config.unreachable_s)
        with suppress(Stopped):
            pool = await patience(client.pool)
            if pool.trust != "open":
                client.sign_calls(key, pool.digest())
            vitals = Vitals(client.node, Role.VALIDATOR, activity, cpu_s=lambda: time.process_time() + spent.cpu_s)
            async with heartbeats(client, vitals, config.heartbeat_s):
                await Validator(config, client, relays, patience, pool, activity, vitals, spent, key).run()
    logger.info("validator %s stops", node)


@dataclass(slots=True)
class Spent:
    """CPU seconds of the judging process, which the system does not count to this one."""

    cpu_s: float = 0.0


class Validator:
    """One validator's loop."""

    def __init__(
        self,
        config: ValidatorConfig,
        client: CoordinatorClient,
        relays: Servers,
        patience: Patience,
        pool: PoolSpec,
        activity: ActivityClock,
        vitals: Vitals,
        spent: Spent,
        key: NodeKey,
    ) -> None:
        self._key = key
        self._config = config
        self._client = client
        self._patience = patience
        self._pool = pool
        self._activity = activity
        self._vitals = vitals
        self._sources = PoolSources(client.url, client.get_chunk, client.relays, relays.chunk, time.monotonic)
        self._fetcher = PolicyFetcher(self._sources.get_chunk, ChunkCache(FILE_CACHE_BYTES))
        trust = ManifestTrust(trainer=config.trainer or pool.trainer, pool_digest=pool.digest())
        self._guard = Guard(trust, report=vitals.set_alarm)
        self._current_version = -1
        self._spent = spent
        self._faults = FaultWatch(pool.environment.name)
        self._recomputing: Recomputing | None = None
        self._votes = SealedVotes(key, signs=pool.trust != "open")

    async def run(self) -> None:
        judging = await self._first_policy()
        try:
            await self._in_thread(judging.start)
            while not self._client.is_finished:
                with self._activity.waiting("submissions"):
                    work = await self._patience(
                        lambda: self._client.work(
                            self._config.max_assignments, wait_s=self._config.poll_s, held=self._votes.held
                        )
                    )
                await self._show(work.reveals)
                with self._activity.busy("judging"):
                    await self._judge_all(judging, work.items)
        finally:
            judging.close()
            self._sources.log_totals()

    async def _in_thread(self, call: Callable[[], Result]) -> Result:
        """A call of the judging process, until this validator is asked to stop."""
        return await self._patience.unless_stopped(asyncio.to_thread(call))

    async def _first_policy(self) -> JudgingProcess:
        """Tokenizer and vocabulary come with the first version; later versions do not change them."""
        files = None
        while files is None:
            if self._client.is_finished:
                raise Stopped("the run is over")
            with self._activity.waiting("first policy"):
                files = await self._policy_files()
        tokenizer, model = Tokenizer.from_files(files), read_config(json.loads(files[CONFIG_FILE]))
        self._recomputing = self._made_to_recompute(never_drawn(tokenizer, model), end_of_sequence(tokenizer, model))
        return JudgingProcess(
            files,
            self._pool,
            self._client.node,
            step_s=self._config.step_s,
            max_bytes=self._config.max_judging_bytes,
        )

    def _made_to_recompute(
        self, reserved_token_ids: tuple[int, ...], eos_token_ids: tuple[int, ...]
    ) -> "Recomputing | None":
        if self._pool.proofs is None:
            return None
        from farflung.validator.recomputing import Recomputing  # brings torch, which others do without

        return Recomputing(
            self._config,
            self._pool,
            self._pool.proofs,
            client=self._client,
            patience=self._patience,
            fetcher=self._fetcher,
            guard=self._guard,
            reserved_token_ids=reserved_token_ids,
            eos_token_ids=eos_token_ids,
        )

    async def _policy_files(self) -> dict[str, bytes] | None:
        """Of the newest version; None when there is none yet, or when another has just taken its place."""
        manifest = await self._patience(lambda: self._client.latest_manifest(wait_s=self._config.poll_s))
        if manifest is None:
            return None
        if not self._guard.admits(manifest, int(time.time() * 1000)):
            await self._patience.sleep(RETRY_S)
            return None
        self._current_version = manifest.policy_version
        try:
            return await self._patience(lambda: self._fetcher.fetch(manifest, POLICY_FILES))
        except Refused as refusal:
            logger.info("version %d: %s", manifest.policy_version, refusal)
            await self._patience.sleep(RETRY_S)
            return None

    async def _judge_all(self, judging: JudgingProcess, assignments: Sequence[Assignment]) -> None:
        newer = await self._patience(lambda: self._client.latest_manifest(newer_than=self._current_version))
        if newer is not None and self._guard.admits(newer, int(time.time() * 1000)):
            self._current_version = newer.policy_version
            self._vitals.set_policy_version(newer.policy_version)
        for assignment in sorted(assignments, key=lambda each: each.lease.policy_version):  # load each version once
            await self._judge(judging, assignment)

    async def _judge(self, judging: JudgingProcess, assignment: Assignment) -> None:
        """Judge, tell it, and stop when there is no sense in going on."""
        now_ms = int(time.time() * 1000)
        try:
            data = await self._download(assignment)
            compute = None if self._recomputing is None else await self._recomputing.computing(assignment)
            judgement = await self._in_thread(
                lambda: judging.judge(assignment, data, self._current_version, now_ms, compute)
            )
        except OurFault as error:
            logger.warning("submission %s could not be judged: %s", assignment.submission.digest(), error)
            await self._post(assignment, own_fault(assignment, str(error), self._pool, self._client.node, now_ms))
            self._faults.not_judged(str(error))
            return
        await self._post(assignment, judgement)
        broken = ""
        if _nothing_could_be_graded(judgement):
            broken = await self._in_thread(lambda: judging.control(assignment))
        self._faults.judged(broken=broken)
        self._spent.cpu_s = judging.cpu_s

    async def _post(self, assignment: Assignment, judgement: Judgement) -> None:
        submission = assignment.submission
        if self._pool.trust != "open":
            judgement = replace(judgement, verdict=sign(judgement.verdict, self._key))
        commitment = self._votes.sealed(judgement) if assignment.is_sealed else None
        try:
            await self._patience(
                lambda: self._client.judge(judgement) if commitment is None else self._client.seal(commitment)
            )
        except Refused as refusal:
            logger.warning("verdict on slot %d came too late: %s", submission.slot, refusal)
            self._votes.forget(submission.digest())
            return
        self._vitals.add_tokens(submission.num_tokens)
        if judgement.verdict.outcome is not Outcome.ACCEPTED:
            logger.info("slot %d: %s %s", submission.slot, judgement.verdict.outcome, judgement.evidence.detail)

    async def _show(self, digests: Sequence[str]) -> None:
        """Votes that all validators of a submission have committed to."""
        for digest in digests:
            reveal = self._votes.shown(digest)
            if reveal is None:
                continue
            try:
                await self._patience(partial(self._client.show, reveal))
            except Refused as refusal:
                logger.warning("vote on submission %s came too late: %s", digest, refusal)
            self._votes.forget(digest)

    async def _download(self, assignment: Assignment) -> bytes | None:
        try:
            return await self._patience(
                lambda: self._client.download(assignment.submission.file_key, self._pool.max_file_bytes)
            )
        except Refused as refusal:
            logger.info("file of slot %d: %s", assignment.submission.slot, refusal)
            return None
        except PeerFault as error:  # the coordinator's answer, not the worker's file
            raise OurFault(f"download of {assignment.submission.file_key}: {error}") from error


def _nothing_could_be_graded(judgement: Judgement) -> bool:
    has_faults = any(name.startswith(GRADING_FAULT) for name in judgement.verdict.measured)
    return has_faults and all(result.reward is None for result in judgement.evidence.rewards)
