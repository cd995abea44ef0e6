"""The trainer of a local run: `trainer.service`'s loop, with samplers in place of a pool."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import torch

from farflung.api.patience import Stopped
from farflung.local.background_checkpoints import BackgroundCheckpoints
from farflung.local.crew import Crew
from farflung.local.feed import LocalFeed
from farflung.local.history import step_back
from farflung.local.messages import Settings
from farflung.local.publisher import LocalPublisher
from farflung.local.slot_book import local_rules
from farflung.local.tally import STATUS_EVERY_S, StatusFile, Tally, status_of
from farflung.model.determinism import compute_deterministically
from farflung.slots.deterministic import secret_of
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.heartbeat import Vitals
from farflung.trainer.checkpoint import Checkpoint
from farflung.trainer.config import TrainerConfig
from farflung.trainer.figures import METRICS_FILE, Figures
from farflung.trainer.inbox import Inbox
from farflung.trainer.marks import Marks, pass_by
from farflung.trainer.service import CHECKPOINTS_FOLDER, MODEL_FOLDER, NODE, Trainer
from farflung.trainer.setup import Setup, set_up
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.worker.config import WorkerConfig

TALLY = "local"
"""Name of the tally among a checkpoint's components."""
ACTIVITY_FOLDER = "activity"


async def run(
    config: TrainerConfig,
    worker: WorkerConfig,
    pool: PoolSpec,
    *,
    crew: Crew,
    run_folder: Path,
    seed: int,
    stop: asyncio.Event,
    marks: Marks = pass_by,
    activity: ActivityClock | None = None,
) -> None:
    """Train until `config.max_versions` or until `stop` is set; a later call goes on.

    Args:
        worker: how samplers compute; what concerns the network is not looked at.
        crew: sampler processes; they end with this call.
        seed: of weights, and of all tasks and draws.
        marks: told the moments of the trainer's life.

    Raises:
        UserError: settings, folder and checkpoint do not fit together, or the environment is broken.
        OurFault: the disk is full, or steps give no finite weights again and again.
    """
    activity = activity or ActivityClock(time.monotonic)
    try:
        torch.set_num_threads(1)
        if config.batch_counts == "all":  # else batches are as large as they have to be, and what goes stale is dropped
            pool = local_rules(pool)
        if pool.is_deterministic:
            compute_deterministically()
        checkpoints = BackgroundCheckpoints(run_folder / CHECKPOINTS_FOLDER, _num_kept(config, pool), marks)
        checkpoint = await asyncio.to_thread(checkpoints.load_newest)
        version = None if checkpoint is None else checkpoint.progress.policy_version
        step_back(run_folder / METRICS_FILE, run_folder / CHECKPOINTS_FOLDER, version)
        setup = await asyncio.to_thread(set_up, config, pool, seed, checkpoint, run_folder)
        tally = _tally(pool, checkpoint, setup)
        setup = replace(setup, components={**setup.components, TALLY: tally})
        inbox = Inbox(setup.buffer)
        feed = LocalFeed(
            pool,
            inbox,
            crew,
            [
                _settings(process.name, worker, config.compute.device, pool, setup, run_folder)
                for process in crew.processes
            ],
            tally,
            secret=secret_of(seed),
            stop=stop,
        )
        trainer = Trainer(
            config=config,
            pool=pool,
            setup=setup,
            inbox=inbox,
            feed=feed,
            publisher=LocalPublisher(pool, setup.policy_files, feed, checkpoints),
            checkpoints=checkpoints,
            figures=Figures(run_folder, config.num_samples_logged),
            model_folder=run_folder / MODEL_FOLDER,
            activity=activity,
            vitals=Vitals(NODE, Role.TRAINER, activity),
            stop=stop,
            marks=marks,
        )
        async with _status(trainer, feed, tally, StatusFile(run_folder)):
            with suppress(Stopped):
                await trainer.run()
            await asyncio.to_thread(checkpoints.settle)
    finally:
        crew.close()


def _num_kept(config: TrainerConfig, pool: PoolSpec) -> int:
    """In deterministic mode enough to sample again with every version that is still to be sampled with.

    The newest, those before it, and one more so that it may be the newest that is damaged.
    """
    return max(config.checkpoint.keep, pool.max_staleness + 2 if pool.is_deterministic else 0)


def _tally(pool: PoolSpec, checkpoint: Checkpoint | None, setup: Setup) -> Tally:
    buffer = setup.buffer
    tally = Tally(
        pool.environment.name, has_ended=lambda slot: buffer.has_seen(slot) and slot not in buffer.pending_slots()
    )
    kept = None if checkpoint is None else checkpoint.progress.component_state.get(TALLY)
    if kept is not None:
        tally.restore(kept)
    return tally


def _settings(name: str, worker: WorkerConfig, device: str, pool: PoolSpec, setup: Setup, run_folder: Path) -> Settings:
    return Settings(
        name=name,
        pool=pool,
        policy_files=setup.policy_files,
        max_batch_rows=worker.max_batch_rows,
        num_threads=worker.num_threads,
        device=device,
        activity_path=str(run_folder / ACTIVITY_FOLDER / f"{name}.jsonl"),
    )


@asynccontextmanager
async def _status(trainer: Trainer, feed: LocalFeed, tally: Tally, file: StatusFile) -> AsyncIterator[None]:
    """Written every second, and once more at the end."""

    def write() -> None:
        file.write(
            status_of(
                tally,
                trainer.vitals.heartbeat(),
                pool=trainer.pool.name,
                outstanding_groups=feed.num_outstanding_groups,
                is_finished=trainer.publisher.policy_version >= trainer.config.max_versions,
                now_ms=int(time.time() * 1000),
            )
        )

    async def write_often() -> None:
        while True:
            write()
            await asyncio.sleep(STATUS_EVERY_S)

    writing = asyncio.create_task(write_often())
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        write()
