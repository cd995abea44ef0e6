"""The process that samples and grades for a trainer on the same machine: `python -m farflung.local.sampler FD FD`.

It is the pool's worker without the network: the same lease gives the same tokens. It ends when the trainer hangs up.
"""

import mmap
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from farflung.broadcast.fetched import FetchedPolicy
from farflung.engine.base import Cancelled
from farflung.engine.rounds import Seat
from farflung.envs.base import Environment
from farflung.envs.episode import Episodic
from farflung.envs.playing import episode_result
from farflung.envs.registry import load_for_grading
from farflung.errors import UserError
from farflung.local.grading import Grader
from farflung.local.messages import (
    LENGTH,
    Broken,
    FromSampler,
    Ready,
    Sampled,
    Settings,
    ToSampler,
    Unworkable,
    Weights,
    Work,
    decoder_of,
    to_frame,
)
from farflung.local.shared_weights import map_for_reading
from farflung.model.adapter_files import WEIGHTS as ADAPTER
from farflung.model.determinism import FIXED_BATCH_ROWS, compute_deterministically
from farflung.model.devices import find_device
from farflung.model.tokenizer import Tokenizer
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.heartbeat import Vitals
from farflung.telemetry.intervals import IntervalLog
from farflung.telemetry.logs import log_to_stderr
from farflung.telemetry.metrics import MetricsLog
from farflung.wire.lease import Lease
from farflung.wire.node import Role
from farflung.wire.rollout import Rollout
from farflung.wire.task import Task
from farflung.wire.verdict import RewardResult
from farflung.worker.sampler import WEIGHTS, Sampler, rollouts_of
from farflung.worker.sampler import Unworkable as NotAllowed


class Link:
    """Blocking frames to and from the trainer."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._file = self._socket.makefile("rb")
        self._decoder = decoder_of(ToSampler)
        self._hang_up = select.poll()
        self._hang_up.register(fd, select.POLLHUP)

    def receive(self) -> Settings | Work | None:
        """None once the trainer has hung up."""
        head = self._file.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        message: Settings | Work = self._decoder.decode(self._file.read(*LENGTH.unpack(head)))
        return message

    def send(self, message: FromSampler) -> None:
        self._socket.sendall(to_frame(message))

    def is_over(self) -> bool:
        """Whether the trainer has hung up; asked between the steps of the engine."""
        return any(event & select.POLLHUP for _, event in self._hang_up.poll(0))


class Desk:
    """One slot after another."""

    def __init__(self, link: Link, memory_fd: int, settings: Settings, activity: ActivityClock) -> None:
        self._link = link
        self._memory_fd = memory_fd
        self._memory: mmap.mmap | None = None
        self._settings = settings
        self._pool = settings.pool
        self._activity = activity
        self._vitals = Vitals(settings.name, Role.WORKER, activity)
        self._environment: Environment = load_for_grading(settings.pool.environment)
        self._tokenizer = Tokenizer.from_files(settings.policy_files)
        self._grader = Grader(self._environment, self._tokenizer.decode, self._pool.max_abs_reward)
        self._sampler: Sampler | None = None

    def run(self) -> None:
        """Until the trainer hangs up."""
        self._link.send(Ready())
        while True:
            with self._activity.waiting("a slot"):
                work = self._link.receive()
            if work is None:
                return
            assert isinstance(work, Work), f"settings come once, and this is {type(work).__name__}"
            self._link.send(self._answer(work))

    def _answer(self, work: Work) -> FromSampler:
        with self._activity.busy("loading weights"):
            sampler = self._load(work.weights)
        try:
            with self._activity.busy("building tasks"):
                tasks = self._tasks(work.lease)
        except Exception as error:  # noqa: BLE001 - the boundary to the environment, which is other people's code
            return Broken(sentence=self._no_tasks(error))
        try:
            rollouts, results = self._sampled(sampler, work.lease, tasks)
        except NotAllowed as problem:
            return Unworkable(slot=work.lease.slot, detail=str(problem))
        return self._message(work.lease, tasks, rollouts, results)

    def _sampled(
        self, sampler: Sampler, lease: Lease, tasks: Sequence[Task]
    ) -> tuple[list[Rollout], list[RewardResult]]:
        """Raises `NotAllowed`."""
        if isinstance(self._environment, Episodic):
            with self._activity.busy("sampling"):
                seats = sampler.play(lease, self._environment, self._pool)
            with self._activity.busy("grading"):
                results = [result for seat in seats for result in self._results(seat)]
            return [rollout for seat in seats for rollout in rollouts_of(seat, lease)], results
        with self._activity.busy("sampling"):
            rollouts = sampler.sample(lease, self._environment, self._pool)
        with self._activity.busy("grading"):
            grades = [self._grader.grade(tasks[each.group], each.completion_tokens.tolist()) for each in rollouts]
        return rollouts, [
            RewardResult(group=each.group, sample=each.sample, reward=grade.reward, correct=grade.correct)
            for each, grade in zip(rollouts, grades, strict=True)
        ]

    def _results(self, seat: Seat) -> list[RewardResult]:
        graded = self._grader.grade_episode(seat.episode)
        return [
            episode_result(seat.group, seat.sample_of(agent), view.spans, each)
            for agent, (view, each) in enumerate(zip(seat.episode.views, graded, strict=True))
        ]

    def _tasks(self, lease: Lease) -> list[Task]:
        pairs = zip(lease.task_indices, lease.target_lengths, strict=True)
        return [self._environment.task("train", index, target) for index, target in pairs]

    def _no_tasks(self, error: Exception) -> str:
        name = self._settings.pool.environment.name
        return f"task() of environment {name} fails with {type(error).__name__}: {error}; the run cannot go on"

    def _load(self, weights: Weights) -> Sampler:
        """The sampler with this version, which may be loaded already."""
        version = weights.manifest.policy_version
        sampler = self._sampler
        if sampler is not None and sampler.policy_version == version:
            return sampler
        if self._memory is None:  # it has its size by now
            self._memory = map_for_reading(self._memory_fd)
        fetched = FetchedPolicy(manifest=weights.manifest, files=self._files(weights, self._memory))
        self._vitals.set_policy_version(version)
        if sampler is not None:
            sampler.swap(fetched)
            return sampler
        is_fixed = self._pool.is_deterministic
        self._sampler = Sampler.from_policy(
            fetched,
            self._pool,
            max_batch_rows=FIXED_BATCH_ROWS if is_fixed else self._settings.max_batch_rows,
            num_threads=1 if is_fixed else self._settings.num_threads,
            device=find_device(self._settings.device, "trainer.compute.device"),
            should_stop=self._link.is_over,
        )
        return self._sampler

    def _files(self, weights: Weights, memory: mmap.mmap) -> dict[str, bytes]:
        """Of a version; what lies below adapters only the first time."""
        data = memory[weights.offset : weights.offset + weights.num_bytes]
        if not weights.num_base_bytes:
            return {**self._settings.policy_files, WEIGHTS: data}
        base = {WEIGHTS: memory[: weights.num_base_bytes]} if self._sampler is None else {}
        return {**self._settings.policy_files, **base, ADAPTER: data}

    def _message(
        self, lease: Lease, tasks: Sequence[Task], rollouts: Sequence[Rollout], results: Sequence[RewardResult]
    ) -> Sampled:
        lengths = tuple(len(rollout.completion_tokens) for rollout in rollouts)
        self._vitals.add_tokens(sum(lengths))
        return Sampled(
            slot=lease.slot,
            env=rollouts[0].env,
            task_ids=tuple(task.task_id for task in tasks),
            target_lengths=tuple(task.target_length for task in tasks),
            prompts=tuple(rollout.prompt_tokens.tobytes() for rollout in rollouts),
            lengths=lengths,
            tokens=b"".join(rollout.completion_tokens.tobytes() for rollout in rollouts),
            logprobs=b"".join(rollout.logprobs.tobytes() for rollout in rollouts),
            stop_reasons=tuple(rollout.stop_reason for rollout in rollouts),
            results=tuple(results),
            faults=self._grader.take_faults(),
            heartbeat=self._vitals.heartbeat(),
        )


def main(link_fd: int, memory_fd: int) -> None:
    """Serve the trainer at the other end of `link_fd`; the weights lie in `memory_fd`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which hangs up when it is done
    link = Link(link_fd)
    settings = link.receive()
    if settings is None:
        return
    assert isinstance(settings, Settings), f"settings come first, and this is {type(settings).__name__}"
    log_to_stderr(settings.name)
    torch.set_num_threads(settings.num_threads)
    if settings.pool.is_deterministic:
        compute_deterministically()
    path = Path(settings.activity_path)
    intervals = IntervalLog(MetricsLog(path), node=settings.name, role=Role.WORKER.value)
    activity = ActivityClock(time.monotonic, on_end=intervals.add)
    with suppress(Cancelled, BrokenPipeError, ConnectionResetError):
        try:
            Desk(link, memory_fd, settings, activity).run()
        except UserError as error:
            link.send(Broken(sentence=str(error)))
    intervals.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
