"""The role that learns: batch -> step -> checks -> checkpoint -> publication, overlapped with everybody else's work.

Killed at any moment it goes on where it was: a checkpoint is durable before its version is announced, and announcing
is idempotent.
"""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch

from farflung.api.client import CoordinatorClient
from farflung.api.patience import Patience, Stopped
from farflung.api.presence import heartbeats
from farflung.envs.registry import load_environment
from farflung.errors import OurFault, UserError
from farflung.evaluation.heldout import Evaluation
from farflung.model.factory import random_state
from farflung.model.folder import load_folder, save_folder
from farflung.model.vocabulary import never_drawn
from farflung.rl.buffer import BufferParams, ExperienceBuffer
from farflung.rl.types import Batch
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.heartbeat import Vitals
from farflung.telemetry.metrics import MetricsLog
from farflung.trainer.canary import Canary, append_samples
from farflung.trainer.checkpoint import Checkpoint, Checkpoints, Progress
from farflung.trainer.config import TrainerConfig
from farflung.trainer.feed import Feed
from farflung.trainer.inbox import Inbox
from farflung.trainer.learner import NON_FINITE, Learner, Step, adam_params
from farflung.trainer.model_source import TINY, ModelDescription, describe
from farflung.trainer.policy import Policy
from farflung.trainer.publisher import Publisher
from farflung.trainer.samples import batch_items
from farflung.trainer.warm_start import warm_start
from farflung.wire.manifest import Publication
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec

logger = logging.getLogger(__name__)

NODE = "trainer"
HEARTBEAT_S = 2.0
UNREACHABLE_S = 120.0
COLLAPSE = "canary"
"""Drop reason of a batch after which held-out accuracy had fallen too far."""
MAX_ROLLBACKS_IN_A_ROW = 5
MODEL_FOLDER = "model"
METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.jsonl"
CHECKPOINTS_FOLDER = "checkpoints"


async def run(config: TrainerConfig, *, url: str, run_folder: Path, seed: int, stop: asyncio.Event) -> None:
    """Train until `config.max_versions` or until `stop` is set; a later call goes on.

    Raises:
        UserError: the model folder, the pool and the settings do not fit together.
        OurFault: the disk is full, or steps give no finite weights again and again.
        Transient: the coordinator was away for too long.
    """
    torch.set_num_threads(1)
    activity = ActivityClock(time.monotonic)
    vitals = Vitals(NODE, Role.TRAINER, activity)
    async with CoordinatorClient(url, node=NODE, role=Role.TRAINER) as client:
        with suppress(Stopped):
            pool = await Patience(stop, config.start_timeout_s)(client.pool)
            async with heartbeats(client, vitals, HEARTBEAT_S):
                trainer = Trainer(config, client, pool, run_folder, seed, activity, vitals, stop)
                await trainer.run()


class Trainer:
    """One run's learner between the feed of accepted slots and the chain of publications."""

    def __init__(
        self,
        config: TrainerConfig,
        client: CoordinatorClient,
        pool: PoolSpec,
        run_folder: Path,
        seed: int,
        activity: ActivityClock,
        vitals: Vitals,
        stop: asyncio.Event,
    ) -> None:
        environment = load_environment(pool.environment.name, pool.environment.seed, pool.environment.args)
        description = describe(config.model, environment)
        _check_pool(description, pool)
        reserved = never_drawn(description.tokenizer, description.config)
        state = _initial_state(config, description, seed)
        self._config = config
        self._client = client
        self._pool = pool
        self._run_folder = run_folder
        self._activity = activity
        self._vitals = vitals
        self._stop = stop
        self._environment = environment
        self._description = description
        self._patience = Patience(stop, UNREACHABLE_S)
        self._learner = Learner(Policy(description.config, state, adam_params(config)), config, pool, reserved)
        self._canary = Canary(config.evaluation, description.config, environment, description.tokenizer, pool, reserved)
        self._checkpoints = Checkpoints(run_folder / CHECKPOINTS_FOLDER, config.checkpoint.keep)
        self._publisher = Publisher(client, self._patience, pool, description.policy_files, config.chunk_bytes)
        self._metrics = MetricsLog(run_folder / METRICS_FILE)
        self._inbox = Inbox(ExperienceBuffer(_buffer_params(config, pool)))
        self._feed = Feed(client, self._patience, pool, self._inbox)
        self._discarded: Counter[str] = Counter()
        self._initial_accuracy = 0.0
        self._best_accuracy = 0.0
        self._rollbacks_in_a_row = 0

    async def run(self) -> None:
        """Start or resume, then learn until the last version, then finish."""
        checkpoint = await asyncio.to_thread(self._checkpoints.load_newest)
        if checkpoint is None:
            await self._start()
        else:
            await self._resume(checkpoint)
        self._vitals.set_policy_version(self._publisher.policy_version)
        await self._feed.catch_up()
        reading = asyncio.create_task(self._feed.run())
        learning = asyncio.create_task(self._learn())
        try:
            await asyncio.wait((reading, learning), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()  # raises what ended the feed
            await learning
        finally:
            reading.cancel()
            learning.cancel()
        await self._finish()

    # -- start ----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Warm start, measure, publish version 0."""
        if await self._patience(self._client.last_publication) is not None:
            raise UserError(
                f"the coordinator has published versions but {self._run_folder / CHECKPOINTS_FOLDER} has no "
                "checkpoint: they are of different runs; give the run another name or delete its folder"
            )
        if self._config.warm_start.max_steps:
            with self._activity.busy("warm start"):
                await asyncio.to_thread(self._warm_start)
        if self._stop.is_set():
            raise Stopped("asked to stop during the warm start")
        with self._activity.busy("evaluating"):
            evaluation = await asyncio.to_thread(self._evaluate, 0)
        self._initial_accuracy = self._best_accuracy = evaluation.accuracy
        await self._publish(batch=None, step=None)

    def _warm_start(self) -> None:
        policy, config = self._learner.policy, self._config.warm_start
        warm_start(
            policy,
            self._environment,
            self._description.tokenizer,
            self._description.config.eos_token_ids[0],
            config,
            measure_accuracy=lambda: self._canary.evaluate(policy, 0).accuracy,
            report=lambda step, loss, accuracy: self._metrics.write(
                "warm_start", {"loss": loss, "accuracy": accuracy}, step=step
            ),
            should_stop=self._stop.is_set,
        )

    async def _resume(self, checkpoint: Checkpoint) -> None:
        progress = checkpoint.progress
        if progress.pool_digest != self._pool.digest():
            raise UserError(
                f"the checkpoint in {self._run_folder} is of another pool: its rules have changed; "
                "change them back or give the run another name"
            )
        learner = self._learner
        learner.policy.restore(checkpoint.masters, checkpoint.optimizer)
        learner.optimizer_step = progress.optimizer_step
        learner.tokens_trained = progress.tokens_trained
        learner.dropped_groups = Counter(progress.dropped_groups)
        self._feed.closed = Counter(progress.closed_groups)
        self._discarded = Counter(progress.discarded_groups)
        self._initial_accuracy, self._best_accuracy = progress.initial_accuracy, progress.best_accuracy
        self._inbox = Inbox(
            ExperienceBuffer.restore(_buffer_params(self._config, self._pool), checkpoint.buffer_snapshot)
        )
        closed, self._feed = self._feed.closed, Feed(self._client, self._patience, self._pool, self._inbox)
        self._feed.closed = closed
        await self._publisher.resume(checkpoint, learner.policy)
        logger.info("going on from version %d", self._publisher.policy_version)

    # -- learn ----------------------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        while self._publisher.policy_version < self._config.max_versions and not self._stop.is_set():
            await self._one_version()

    async def _one_version(self) -> None:
        started_s = time.monotonic()
        version = self._publisher.policy_version
        with self._activity.waiting("rollouts"):
            batch = await self._patience.unless_stopped(self._inbox.take(version))
        if batch is None:
            return
        taken_s = time.monotonic()
        with self._activity.busy("training"):
            step = await asyncio.to_thread(self._learner.learn, batch)
        trained_s = time.monotonic()
        if not step.is_applied:
            await self._roll_back(batch, NON_FINITE)
            return
        evaluation = None
        if self._canary.is_due(version + 1, self._config.max_versions):
            with self._activity.busy("evaluating"):
                evaluation = await asyncio.to_thread(self._evaluate, version + 1)
            if self._canary.is_collapse(evaluation, self._best_accuracy):
                await self._roll_back(batch, COLLAPSE)
                return
        evaluated_s = time.monotonic()
        await self._inbox.release(batch.batch_id)
        is_best = evaluation is not None and evaluation.accuracy >= self._best_accuracy
        if evaluation is not None:
            self._best_accuracy = max(self._best_accuracy, evaluation.accuracy)
        with self._activity.busy("publishing"):
            await self._publish(batch=batch, step=step, is_best=is_best)
        self._rollbacks_in_a_row = 0
        ended_s = time.monotonic()
        self._log_version(
            batch,
            step,
            {
                "time/step_s": ended_s - started_s,
                "time/wait_for_batch_s": taken_s - started_s,
                "time/train_s": trained_s - taken_s,
                "time/evaluate_s": evaluated_s - trained_s,
                "time/publish_s": ended_s - evaluated_s,
            },
        )

    async def _publish(self, *, batch: Batch | None, step: Step | None, is_best: bool = False) -> None:
        """Make the checkpoint durable, then announce the version that it holds."""
        learner, publisher = self._learner, self._publisher
        items = None if batch is None or step is None else batch_items(batch, step.training, self._feed.submissions)
        publication, prepared = await asyncio.to_thread(
            publisher.prepare,
            learner.policy,
            optimizer_step=learner.optimizer_step,
            now_ms=int(time.time() * 1000),
            items=items,
            drops=batch.drops if batch is not None else (),
        )
        version = publication.manifest.policy_version
        every = self._config.checkpoint.every_versions
        if version % every == 0 or is_best or version >= self._config.max_versions or self._stop.is_set():
            await asyncio.to_thread(self._checkpoints.save, self._checkpoint(publication))
            if is_best or batch is None:
                self._checkpoints.protect(version)
        await publisher.send(publication, prepared)
        self._vitals.set_policy_version(version)
        if batch is not None:
            self._vitals.add_tokens(batch.num_tokens)
            self._feed.forget([*batch.slots, *(drop.slot for drop in batch.drops)])

    def _checkpoint(self, publication: Publication) -> Checkpoint:
        learner = self._learner
        progress = Progress(
            pool_digest=self._pool.digest(),
            policy_version=publication.manifest.policy_version,
            optimizer_step=learner.optimizer_step,
            tokens_trained=learner.tokens_trained,
            initial_accuracy=self._initial_accuracy,
            best_accuracy=self._best_accuracy,
            dropped_groups=dict(learner.dropped_groups),
            closed_groups=dict(self._feed.closed),
            discarded_groups=dict(self._discarded),
            buffer=dict(self._inbox.buffer.snapshot()),
        )
        return Checkpoint(
            progress=progress,
            publication=publication,
            masters=learner.policy.masters_state(),
            optimizer=learner.policy.optimizer_state(),
        )

    async def _roll_back(self, batch: Batch, reason: str) -> None:
        """Refuse to publish: back to the last good weights, the batch is dropped and never tried again."""
        self._rollbacks_in_a_row += 1
        if self._rollbacks_in_a_row > MAX_ROLLBACKS_IN_A_ROW:
            raise OurFault(
                f"{self._rollbacks_in_a_row} batches in a row were refused ({reason}): lower trainer.lr, or look at "
                f"the rewards in {self._run_folder / METRICS_FILE}"
            )
        logger.warning("batch %d is refused (%s): back to the last good weights", batch.batch_id, reason)
        protected = self._checkpoints.protected() if reason == COLLAPSE else None
        good = (
            await asyncio.to_thread(self._checkpoints.load_newest)
            if protected is None
            else await asyncio.to_thread(self._checkpoints.load, protected)
        )
        assert good is not None, "version 0 has a checkpoint"
        self._learner.policy.restore(good.masters, good.optimizer)
        self._discarded[reason] += batch.num_groups
        self._metrics.write("rollback", {"reason": reason}, version=self._publisher.policy_version)
        await self._inbox.discard(batch.batch_id, reason)

    # -- figures and end ------------------------------------------------------------------------------------------

    def _evaluate(self, version: int) -> Evaluation:
        evaluation = self._canary.evaluate(self._learner.policy, version)
        self._metrics.write(
            "eval",
            {
                "accuracy": evaluation.accuracy,
                "mean_reward": evaluation.mean_reward,
                "mean_length": evaluation.mean_length_tokens,
                "num_tasks": evaluation.num_tasks,
                "num_ungraded": evaluation.num_ungraded,
            },
            version=version,
        )
        append_samples(self._run_folder / SAMPLES_FILE, evaluation, version, self._config.num_samples_logged)
        return evaluation

    def _log_version(self, batch: Batch, step: Step, times: dict[str, float]) -> None:
        histogram = {str(versions): count for versions, count in batch.staleness.counts.items()}
        self._metrics.write(
            "train",
            {**step.metrics, **times, "staleness/histogram": histogram, "drops": self._drops()},
            version=self._publisher.policy_version,
        )

    def _drops(self) -> dict[str, int]:
        """Reason -> groups that were not trained on, since the run began."""
        drops = Counter(self._learner.dropped_groups) + self._feed.closed + self._discarded
        prefix = "buffer/dropped/"
        for name, num_slots in self._inbox.buffer.metrics().items():
            reason = name.removeprefix(prefix)
            if name.startswith(prefix) and reason not in self._discarded:
                drops[reason] += num_slots * self._pool.groups_per_slot
        return dict(drops)

    async def _finish(self) -> None:
        """The model as a folder and the last figures; everybody is told only when the last version is out."""
        policy, description = self._learner.policy, self._description
        await asyncio.to_thread(
            save_folder,
            self._run_folder / MODEL_FOLDER,
            description.config,
            policy.published_state(),
            description.tokenizer.files,
        )
        self._metrics.write(
            "progress",
            {
                "initial_accuracy": self._initial_accuracy,
                "best_accuracy": self._best_accuracy,
                "optimizer_steps": self._learner.optimizer_step,
                "tokens_trained": self._learner.tokens_trained,
                "drops": self._drops(),
            },
            version=self._publisher.policy_version,
        )
        if self._publisher.policy_version >= self._config.max_versions:
            await self._patience(self._client.finish)


def _check_pool(description: ModelDescription, pool: PoolSpec) -> None:
    if description.tokenizer.digest != pool.tokenizer_digest or description.config_digest != pool.model_config_digest:
        raise UserError(
            "the pool's rules name another model or tokenizer than this trainer's config: start coordinator and "
            "trainer from the same config file"
        )


def _initial_state(config: TrainerConfig, description: ModelDescription, seed: int) -> dict[str, torch.Tensor]:
    if config.model.path == TINY:
        return random_state(description.config, seed, config.model.init_std)
    return dict(load_folder(Path(config.model.path)).state)


def _buffer_params(config: TrainerConfig, pool: PoolSpec) -> BufferParams:
    """Places for everything that the coordinator lets be outstanding, so the feed never blocks on a full buffer."""
    outstanding_slots = -(-pool.max_outstanding_groups // pool.groups_per_slot)
    return BufferParams(
        groups_per_batch=pool.groups_per_batch,
        max_staleness=pool.max_staleness,
        max_slots=outstanding_slots + pool.groups_per_batch // pool.groups_per_slot,
        window_slots=config.window_slots,
    )
