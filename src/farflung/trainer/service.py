"""The role that learns: batch -> step -> checks -> checkpoint -> publication, overlapped with everybody else's work.

Killed at any moment it goes on where it was: a checkpoint is durable before its version is announced, and announcing
is idempotent. Asked to stop it ends the step in hand, makes it durable and leaves.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from farflung.api.client import CoordinatorClient
from farflung.api.patience import Patience, Stopped
from farflung.api.presence import heartbeats
from farflung.envs.playing import EpisodeLimits
from farflung.errors import OurFault, UserError
from farflung.evaluation.heldout import Evaluation
from farflung.identity.keys import make_key
from farflung.model.adapter_files import save_adapter_folder
from farflung.model.determinism import compute_deterministically
from farflung.model.folder import save_folder
from farflung.model.vocabulary import end_of_sequence
from farflung.rl.types import Batch
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.heartbeat import Vitals
from farflung.trainer.checkpoint import Checkpoint, Checkpoints, Progress
from farflung.trainer.config import TrainerConfig
from farflung.trainer.feed import Feed
from farflung.trainer.figures import Figures, Laps, drops
from farflung.trainer.inbox import Inbox
from farflung.trainer.intake import IntakeRules
from farflung.trainer.learner import NON_FINITE, Step
from farflung.trainer.marks import Mark, Marks, pass_by
from farflung.trainer.member_metrics import member_metrics
from farflung.trainer.ports import PolicyTarget, RolloutSource
from farflung.trainer.publisher import Publisher
from farflung.trainer.regrading import Regrader
from farflung.trainer.samples import group_rewards
from farflung.trainer.setup import Setup, set_up
from farflung.trainer.warm_start import warm_start
from farflung.wire.manifest import Publication
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

NODE = "trainer"
COLLAPSE = "canary"
"""Drop reason of a batch after which held-out accuracy had fallen too far."""
MAX_ROLLBACKS_IN_A_ROW = 5
MAX_UNGRADED_IN_A_ROW = 10
"""Batches without a single reward: more than a grader that is away for a while, and soon enough to be noticed."""
MODEL_FOLDER = "model"
ADAPTER_FOLDER = "adapter"
CHECKPOINTS_FOLDER = "checkpoints"
KEY_FILE = Path("keys", "trainer")


async def run(
    config: TrainerConfig,
    *,
    url: str,
    run_folder: Path,
    seed: int,
    stop: asyncio.Event,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    marks: Marks = pass_by,
    activity: ActivityClock | None = None,
) -> None:
    """Train until `config.max_versions` or until `stop` is set; a later call goes on.

    Args:
        token: the pool's secret for trainers.
        tls: how an https coordinator is checked; None = as the system does it.
        marks: told the moments of the trainer's life.
        activity: the trainer's own account of its time, for a caller who wants to record it.

    Raises:
        UserError: model folder, pool, settings and checkpoint do not fit together, or nothing is ever graded.
        OurFault: the disk is full, or steps give no finite weights again and again.
        Transient: the coordinator was away for longer than `config.unreachable_s`.
    """
    torch.set_num_threads(1)
    activity = activity or ActivityClock(time.monotonic)
    vitals = Vitals(NODE, Role.TRAINER, activity)
    patience = Patience(stop, config.unreachable_s)
    async with CoordinatorClient(url, node=NODE, role=Role.TRAINER, token=token, tls=tls) as client:
        with suppress(Stopped):
            pool = await patience(client.pool)
            if pool.is_deterministic:
                compute_deterministically()
            async with heartbeats(client, vitals, config.heartbeat_s):
                checkpoints = Checkpoints(run_folder / CHECKPOINTS_FOLDER, config.checkpoint.keep, marks)
                checkpoint = await asyncio.to_thread(checkpoints.load_newest)
                setup = await asyncio.to_thread(set_up, config, pool, seed, checkpoint, run_folder)
                key = await asyncio.to_thread(make_key, run_folder / KEY_FILE)
                logger.info("versions are signed by %s", key.address)
                inbox = Inbox(setup.buffer)
                trainer = Trainer(
                    config=config,
                    pool=pool,
                    setup=setup,
                    inbox=inbox,
                    feed=Feed(
                        client,
                        patience,
                        _intake_rules(setup, pool),
                        inbox,
                        poll_s=config.poll_s,
                        regrader=_regrader(config, setup, pool),
                    ),
                    publisher=Publisher(
                        client,
                        patience,
                        pool,
                        setup.policy_files,
                        config.chunk_bytes,
                        key=key,
                        snapshot_every=config.snapshot_every,
                    ),
                    checkpoints=checkpoints,
                    figures=Figures(run_folder, config.num_samples_logged),
                    model_folder=run_folder / MODEL_FOLDER,
                    activity=activity,
                    vitals=vitals,
                    stop=stop,
                    marks=marks,
                )
                await trainer.run()


@dataclass(kw_only=True, eq=False, slots=True)
class Trainer:
    """One run's learner between the feed of accepted slots and the chain of publications."""

    config: TrainerConfig
    pool: PoolSpec
    setup: Setup
    inbox: Inbox
    feed: RolloutSource
    publisher: PolicyTarget
    checkpoints: Checkpoints
    figures: Figures
    model_folder: Path
    activity: ActivityClock
    vitals: Vitals
    stop: asyncio.Event
    marks: Marks = pass_by
    _saved_version: int = -1
    _rollbacks_in_a_row: int = 0
    _ungraded_in_a_row: int = 0

    async def run(self) -> None:
        """Begin or go on, learn until the last version or until asked to stop, and leave everything in order."""
        await (self._begin() if self.setup.publication is None else self._go_on(self.setup.publication))
        await self.feed.close_absent()
        reading = asyncio.create_task(self.feed.run())
        learning = asyncio.create_task(self._learn())
        try:
            await asyncio.wait((reading, learning), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await reading  # raises what ended the feed
            await learning
        finally:
            for task in (reading, learning):
                task.cancel()
            await asyncio.gather(reading, learning, return_exceptions=True)
        await self._end()

    # -- begin ----------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Warm start, measure, publish version 0."""
        await self.publisher.begin()
        if self.config.warm_start.max_steps:
            with self.activity.busy("warm start"):
                await asyncio.to_thread(self._warm_start)
        if self.stop.is_set():
            raise Stopped("asked to stop during the warm start")
        evaluation = await self._evaluate(0)
        self.figures.evaluation(0, evaluation)
        self.setup.canary.initial_accuracy = evaluation.accuracy
        self.marks(Mark.BEGUN, 0)
        await self._publish(None, None, is_best=self.setup.canary.accept(evaluation))

    async def _go_on(self, publication: Publication) -> None:
        """From a checkpoint."""
        self._saved_version = publication.manifest.policy_version
        self._rollbacks_in_a_row = self.setup.rollbacks_in_a_row
        await self.publisher.resume(publication, self.setup.learner.policy)
        self.vitals.set_policy_version(self.publisher.policy_version)
        logger.info("going on from version %d", self.publisher.policy_version)
        if self.setup.accepted_changes:
            logger.warning("changed knowingly: %s", "; ".join(self.setup.accepted_changes))
            self.figures.accepted_changes(self.publisher.policy_version, self.setup.accepted_changes)

    def _warm_start(self) -> None:
        setup = self.setup
        policy, description = setup.learner.policy, setup.description
        warm_start(
            policy,
            setup.environment,
            description.tokenizer,
            EpisodeLimits.of_pool(self.pool, end_of_sequence(description.tokenizer, description.config)),
            description.config.eos_token_ids[0],
            self.config.warm_start,
            measure_accuracy=lambda: setup.canary.evaluate(policy, 0).lowest_accuracy,
            report=self.figures.warm_start,
            should_stop=self.stop.is_set,
        )

    # -- learn ----------------------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        """Version after version, until the last one or until nothing more comes."""
        laps = Laps(time.monotonic)
        while self.publisher.policy_version < self.config.max_versions and not self.stop.is_set():
            self.marks(Mark.WAITING, self.publisher.policy_version + 1)
            with self.activity.waiting("rollouts"):
                batch = await self.inbox.take(self.publisher.policy_version)
            if batch is None:
                return
            laps.end("wait_for_batch")
            await self._learn_from(batch, laps)

    async def _learn_from(self, batch: Batch, laps: Laps) -> None:
        """Make the next version of a batch, or refuse it. An empty batch makes one with the same weights."""
        next_version = self.publisher.policy_version + 1
        self.marks(Mark.BATCH_TAKEN, next_version)
        self._look_for_grades(batch)
        with self.activity.busy("training"):
            step = await self._in_thread(lambda: self.setup.learner.learn(batch), Mark.STEPPING, next_version)
        self.marks(Mark.STEPPED, next_version)
        laps.end("train")
        if not step.is_applied:
            await self._roll_back(batch, NON_FINITE, must_restore=step.is_spoilt)
            return
        canary = self.setup.canary
        is_due = canary.is_due(next_version, self.config.max_versions)
        evaluation = await self._evaluate(next_version) if is_due else None
        laps.end("evaluate")
        if evaluation is not None and canary.is_collapse(evaluation):
            await self._roll_back(batch, COLLAPSE, must_restore=True, evaluation=evaluation)
            return
        if evaluation is not None:
            self.figures.evaluation(next_version, evaluation)
        if batch.entries:
            self._rollbacks_in_a_row = 0
            if not step.num_loss_tokens:
                logger.warning(
                    "version %d has the weights of the one before: none of its %d groups had signal",
                    next_version,
                    batch.num_groups,
                )
        self.setup.learner.keep(step)
        await self.inbox.release(batch.batch_id)
        if self.setup.curriculum is not None:
            await asyncio.to_thread(self.setup.curriculum.advance, batch)
        is_best = evaluation is not None and canary.accept(evaluation)
        # Before the version is durable: killed in between, it is made and written once more, and never missing.
        self.figures.version(next_version, batch, step, laps.take(), self._drops(), self._steering_metrics(batch))
        self.marks(Mark.RELEASED, next_version)
        with self.activity.busy("publishing"), suppress(Stopped):  # stopped, it is durable: the next start announces it
            await self._publish(batch, step, is_best=is_best)
        laps.end("publish")

    async def _evaluate(self, version: int) -> Evaluation:
        canary, policy = self.setup.canary, self.setup.learner.policy
        with self.activity.busy("evaluating"):
            return await self._in_thread(lambda: canary.evaluate(policy, version), Mark.EVALUATING, version)

    def _in_thread(self, work: Callable[[], Result], mark: Mark, version: int) -> Awaitable[Result]:
        """Start blocking work; the mark is passed while it runs."""
        running = asyncio.get_running_loop().run_in_executor(None, work)
        self.marks(mark, version)
        return running

    def _look_for_grades(self, batch: Batch) -> None:
        """A run in which nothing is graded learns nothing, and must not end as if all were well."""
        if not batch.entries:
            return
        rewards, _ = group_rewards(batch.groups)
        self._ungraded_in_a_row = 0 if rewards else self._ungraded_in_a_row + 1
        if self._ungraded_in_a_row == 1:
            logger.warning("batch %d has not a single reward: nothing is learned from it", batch.batch_id)
        if self._ungraded_in_a_row >= MAX_UNGRADED_IN_A_ROW:
            raise UserError(self._nothing_graded())

    def _nothing_graded(self) -> str:
        return (
            f"not one rollout of the last {self._ungraded_in_a_row} batches has a reward: nothing is learned; look at "
            f"grade() of environment {self.setup.environment.name}, which gave reward None for all of them"
        )

    async def _publish(self, batch: Batch | None, step: Step | None, *, is_best: bool) -> None:
        """Make the checkpoint durable, then announce the version that it holds."""
        learner, curriculum = self.setup.learner, self.setup.curriculum
        publication, prepared = await asyncio.to_thread(
            self.publisher.prepare,
            learner.policy,
            optimizer_step=learner.optimizer_step,
            now_ms=int(time.time() * 1000),
            items=None if batch is None or step is None else self.feed.items(batch, step.training),
            drops=() if batch is None else batch.drops,
            plan=None if curriculum is None else curriculum.plan_for(self.publisher.policy_version + 1),
        )
        version = publication.manifest.policy_version
        is_last = version >= self.config.max_versions or self.stop.is_set()
        if is_best or is_last or version % self.config.checkpoint.every_versions == 0:
            await self._save(publication, is_best=is_best)
            self.marks(Mark.SAVED, version)
        try:
            await self.publisher.send(publication, prepared)
            self.marks(Mark.ANNOUNCED, version)
        except Stopped:
            if self._saved_version < version:  # the stop came after the decision not to save
                await self._save(publication, is_best=is_best)
            raise
        self.vitals.set_policy_version(version)
        if batch is not None:
            self.vitals.add_tokens(batch.num_tokens)
            self.feed.published([*batch.slots, *(drop.slot for drop in batch.drops)])

    def _steering_metrics(self, batch: Batch) -> dict[str, float]:
        """Of the pool's strata, and of the plan that the batch's successors are sampled by."""
        members = member_metrics(batch.groups, self.pool.environment.strata)
        curriculum = self.setup.curriculum
        return members if curriculum is None else members | curriculum.metrics(self.publisher.policy_version + 1)

    async def _roll_back(
        self, batch: Batch, reason: str, *, must_restore: bool, evaluation: Evaluation | None = None
    ) -> None:
        """Refuse to publish: back to the last good weights, the batch is dropped and never tried again.

        The next batch record reports the drop; the buffer sees to it that one comes before the pool starves.
        """
        self._rollbacks_in_a_row += 1
        if self._rollbacks_in_a_row > MAX_ROLLBACKS_IN_A_ROW:
            raise OurFault(
                f"{self._rollbacks_in_a_row} batches in a row were refused ({reason}): lower trainer.optimizer.lr, or "
                "look at reward/mean in the run's metrics.jsonl"
            )
        logger.warning("batch %d is refused (%s): back to the last good weights", batch.batch_id, reason)
        learner, checkpoints = self.setup.learner, self.checkpoints
        if must_restore:
            good = await asyncio.to_thread(checkpoints.load_best if reason == COLLAPSE else checkpoints.load_newest)
            if good is None:
                raise OurFault("there is no checkpoint that can be read to go back to: start the run again")
            learner.go_back(good)
        self.marks(Mark.ROLLING_BACK, self.publisher.policy_version + 1)
        self.figures.rollback(self.publisher.policy_version, reason, evaluation)
        await self.inbox.discard(batch.batch_id, reason)

    # -- end ------------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Leave the newest version as checkpoint and model folder, with the last figures."""
        version = self.publisher.policy_version
        if self.publisher.last is not None and self._saved_version < version:
            await self._save(self.publisher.last, is_best=False)
        await asyncio.to_thread(self._write_model)
        self.figures.progress(
            version,
            {
                "initial_accuracy": self.setup.canary.initial_accuracy,
                "best_accuracy": self.setup.canary.best_accuracy,
                "optimizer_steps": self.setup.learner.optimizer_step,
                "tokens_trained": self.setup.learner.tokens_trained,
                "drops": self._drops(),
            },
        )
        if self._ungraded_in_a_row and not self.setup.learner.tokens_trained:
            raise UserError(self._nothing_graded())
        self.marks(Mark.ENDING, version)
        if version >= self.config.max_versions:
            await self.publisher.finish()

    def _write_model(self) -> None:
        description, state = self.setup.description, self.setup.learner.policy.published_state()
        save_folder(self.model_folder, description.config, state, description.tokenizer.files)
        adapter = self.setup.learner.policy.adapter()
        if adapter is not None:
            save_adapter_folder(self.model_folder.with_name(ADAPTER_FOLDER), adapter, base_name=self.config.model.path)

    async def _save(self, publication: Publication, *, is_best: bool) -> None:
        setup = self.setup
        progress = Progress(
            pool_digest=self.pool.digest(),
            policy_version=publication.manifest.policy_version,
            optimizer_step=setup.learner.optimizer_step,
            initial_accuracy=setup.canary.initial_accuracy,
            best_accuracy=setup.canary.best_accuracy,
            tokens_trained=setup.learner.tokens_trained,
            dropped_groups=dict(setup.learner.dropped_groups),
            buffer=dict(self.inbox.buffer.snapshot()),
            component_state={name: component.snapshot() for name, component in setup.components.items()},
            rollbacks_in_a_row=self._rollbacks_in_a_row,
            lineage=setup.lineage,
        )
        await asyncio.to_thread(self._write_checkpoint, progress, publication, is_best)
        self._saved_version = progress.policy_version

    def _write_checkpoint(self, progress: Progress, publication: Publication, is_best: bool) -> None:
        policy = self.setup.learner.policy
        checkpoint = Checkpoint(
            progress=progress,
            publication=publication,
            masters=policy.masters_state(),
            optimizer=policy.optimizer_state(),
        )
        self.checkpoints.save(checkpoint, is_best=is_best)

    def _drops(self) -> dict[str, int]:
        learner, buffer = self.setup.learner, self.inbox.buffer
        return drops(learner.dropped_groups, buffer.metrics(), self.pool.groups_per_slot)


def _intake_rules(setup: Setup, pool: PoolSpec) -> IntakeRules:
    return IntakeRules(
        pool=pool, vocab_size=setup.description.config.vocab_size, reserved_token_ids=setup.reserved_token_ids
    )


def _regrader(config: TrainerConfig, setup: Setup, pool: PoolSpec) -> Regrader | None:
    """None in deterministic mode: there nothing may be left out by chance."""
    if pool.is_deterministic:
        return None
    return Regrader(setup.environment, setup.description.tokenizer, config.regrade_share)
