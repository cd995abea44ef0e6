"""What not waiting is worth, and what it loses: wall-clock and drops of a pool with stragglers.

One batch is K slots, and there are K workers, so that both modes have the same machines. X is the time of a slot: its
sampling and a log-normal delay with mean c. T trains, V verifies a slot, P publishes a version until workers have it.

    synchronous     T_sync  = E[max of K draws of X] + V + T + P        nobody works on anything else meanwhile
    asynchronous    T_async = max(T, E[X], K V)                        phases overlap, the slowest one sets the pace
    speed-up        T_sync / T_async

This is the formula 1 + (B + L) / (R + T) of a cluster whose machines can change sides, told for a pool whose workers
cannot train: B is max - mean, verification and publication are removed from the path as well. Assumptions: one slot per
worker and version when synchronous; with stragglers only the last slot's verification is on the path, without any all K
slots arrive at once and queue, K V; nothing is dropped.

Simulated time (`pool_sim`: the real ledger, leases and buffer) with costs measured here, in CPU-seconds of one core;
`real` checks two runs of real processes, with workers that sleep. The second table says who loses work to staleness.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from benchmarks.lagged import GROUP_SIZE, Lab, SlotUse
from benchmarks.measure import cpu_time
from benchmarks.pool_sim import Costs, History, PoolSim, SimWorker, lognormal
from benchmarks.record import record
from benchmarks.staleness import CACHE, TASKS
from farflung.rl.buffer import BufferParams, ExperienceBuffer
from farflung.trainer.config import OptimizerConfig, TrainerConfig
from farflung.trainer.learner import Learner
from farflung.trainer.policy import Policy
from farflung.validation.case import JudgeRules, SlotEvidence
from farflung.validation.judge import judge
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import Outcome, RewardResult

SLOTS_PER_BATCH = 8
GROUPS_PER_SLOT = 8
SIGMA = 1.0
"""Log-standard deviation of the delays."""
SCALES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Mean delay of a slot, in training steps."""
SEEDS = (0, 1, 2)
NUM_VERSIONS = 200
MAX_STALENESS = 4
BATCHES_OUTSTANDING = 3

REAL_SLOWNESS = tuple(round(10 * float(np.exp(NormalDist().inv_cdf(q))), 1) for q in (0.125, 0.375, 0.625, 0.875))
"""Of the four workers of the real check: the quartile midpoints of 10 * exp(N(0, 1))."""
REAL_VERSIONS = 24
REAL_TIMEOUT_S = 600
WAIT = "time/wait_for_batch_s"

SPEEDS = {"1x": 1.0, "3x slower": 3.0, "10x slower": 10.0}
NUM_PER_SPEED = 4
LENGTH_SIGMA = 0.8
"""Of slot lengths: the longest tenth has five times the tokens of the median."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phases:
    """Seconds of the parts of one version, one batch of `SLOTS_PER_BATCH` slots."""

    sample_s: float
    """One slot."""
    verify_s: float
    """One slot."""
    train_s: float
    publish_s: float
    slot_tokens: int


def run() -> None:
    torch.set_num_threads(1)
    phases = measure_phases()
    print(f"stragglers: {phases}", flush=True)
    speed_ups(phases)
    drops()
    real()


# -- the formula ----------------------------------------------------------------------------------------------------


def expected_slot_s(phases: Phases, delay_s: float) -> float:
    return phases.sample_s + delay_s


def expected_slowest_s(phases: Phases, delay_s: float, num_slots: int = SLOTS_PER_BATCH, steps: int = 20_000) -> float:
    """E[max of n draws of X] = integral over u in [0, 1] of Q(u) n u^(n - 1), Q the quantile function of X.

    By the midpoint rule in v = u^n, which spreads the points to where the maximum lies.
    """
    if not delay_s:
        return phases.sample_s
    normal = NormalDist(np.log(delay_s) - SIGMA**2 / 2, SIGMA)
    quantiles = (normal.inv_cdf(((step + 0.5) / steps) ** (1 / num_slots)) for step in range(steps))
    return phases.sample_s + statistics.fmean(float(np.exp(quantile)) for quantile in quantiles)


def predicted_sync_s(phases: Phases, delay_s: float) -> float:
    verification_s = phases.verify_s * (1 if delay_s else SLOTS_PER_BATCH)
    return expected_slowest_s(phases, delay_s) + verification_s + phases.train_s + phases.publish_s


def predicted_async_s(phases: Phases, delay_s: float) -> float:
    return max(phases.train_s, expected_slot_s(phases, delay_s), SLOTS_PER_BATCH * phases.verify_s)


# -- simulated time -------------------------------------------------------------------------------------------------


def speed_ups(phases: Phases) -> None:
    """Record simulated and predicted seconds per version for every straggler scale."""
    rows = []
    for scale in SCALES:
        delay_s = scale * phases.train_s
        sync, overlapped = (
            [_simulate(phases, delay_s, max_staleness=staleness, seed=seed) for seed in SEEDS]
            for staleness in (0, MAX_STALENESS)
        )
        sync_s, async_s = _seconds_per_version(sync), _seconds_per_version(overlapped)
        used = [fate.end == "trained" for history in overlapped for fate in history.fates]
        row = {
            "scale": scale,
            "sync_s": round(sync_s, 4),
            "async_s": round(async_s, 4),
            "speed_up": round(sync_s / async_s, 3),
            "predicted_sync_s": round(predicted_sync_s(phases, delay_s), 4),
            "predicted_async_s": round(predicted_async_s(phases, delay_s), 4),
            "predicted": round(predicted_sync_s(phases, delay_s) / predicted_async_s(phases, delay_s), 3),
            "mean_staleness": round(statistics.fmean(lag for history in overlapped for lag in history.lags), 2),
            "used": round(statistics.fmean(used), 4),
        }
        rows.append(row)
        print(f"  delay {scale:g} T: {row}", flush=True)
    one = next(row for row in rows if row["scale"] == 1.0)
    record(
        "async/speed-up/simulated/delay-1-step",
        one["speed_up"],
        one["predicted"],
        "the formula",
        "x",
        {"phases": _phases_text(phases), "rows": rows},
    )


def _simulate(phases: Phases, delay_s: float, *, max_staleness: int, seed: int) -> History:
    batch = SLOTS_PER_BATCH * GROUPS_PER_SLOT
    rules = pool_rules(
        max_staleness=max_staleness,
        max_outstanding_groups=batch * (BATCHES_OUTSTANDING if max_staleness else 1),
        groups_per_slot=GROUPS_PER_SLOT,
        groups_per_batch=batch,
    )
    workers = [SimWorker(name=f"worker-{n}", delay_s=lognormal(delay_s, SIGMA)) for n in range(SLOTS_PER_BATCH)]
    costs = Costs(
        sample_s_per_token=phases.sample_s / phases.slot_tokens,
        verify_s_per_token=phases.verify_s / phases.slot_tokens,
        train_s=phases.train_s,
        publish_s=phases.publish_s,
    )
    return PoolSim(rules, workers, costs, seed=seed, slot_tokens=lambda _: phases.slot_tokens).run(NUM_VERSIONS)


def _seconds_per_version(histories: Sequence[History]) -> float:
    return statistics.fmean(history.published_s[-1] / len(history.published_s) for history in histories)


def pool_rules(**changes: Any) -> PoolSpec:
    """Rules of a simulated pool; digests of nothing, leases that do not expire."""
    nothing = sha256_hex(b"")
    return PoolSpec(
        **{
            "name": "simulated",
            "environment": EnvironmentSpec(name="simulated", args={}, seed=0, num_tasks=10**6),
            "tokenizer_digest": nothing,
            "model_config_digest": nothing,
            "group_size": GROUP_SIZE,
            "temperature": 1.0,
            "max_prompt_tokens": 16,
            "max_completion_tokens": 64,
            "lease_s": 1e6,
            "max_attempts": 3,
            "max_file_bytes": 1 << 20,
            **changes,
        }
    )


# -- measured costs -------------------------------------------------------------------------------------------------


def measure_phases(rounds: int = 5) -> Phases:
    """CPU-seconds of sampling, verifying, training and publishing long addition, medians."""
    task = TASKS["long-addition"]
    lab = Lab(task, 0, cache=CACHE)
    pool = lab.pool(GROUPS_PER_SLOT, MAX_STALENESS)
    batch_groups = SLOTS_PER_BATCH * GROUPS_PER_SLOT
    policy = Policy(lab.model.config, lab.start, OptimizerConfig())
    weights = policy.published_state()
    groups = lab.sample(pool, SlotUse(slot=0, version=0), weights)
    sample_s = _median(lambda: lab.sample(pool, SlotUse(slot=0, version=0), weights), rounds)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    verify_s = _median(_verification(lab, pool, rollouts), rounds)

    config = TrainerConfig(optimizer=OptimizerConfig(lr=1e-6))
    learner = Learner(policy, config, pool, lab.sampling.reserved_token_ids)
    buffer = ExperienceBuffer(
        BufferParams(groups_per_batch=batch_groups, max_staleness=0, max_slots=SLOTS_PER_BATCH, window_slots=None)
    )
    for slot in range(SLOTS_PER_BATCH):
        buffer.admit(slot, 0, lab.sample(pool, SlotUse(slot=slot, version=0), weights), 1, "worker")
    batch = buffer.take(0)
    assert batch is not None
    train_s = _median(lambda: learner.learn(batch), rounds)
    publish_s = _median(lambda: lab.engine.load_weights(policy.published_state(), 0), rounds)
    return Phases(
        sample_s=sample_s,
        verify_s=verify_s,
        train_s=train_s,
        publish_s=publish_s,
        slot_tokens=sum(len(rollout.completion_tokens) for rollout in rollouts),
    )


def _verification(lab: Lab, pool: PoolSpec, rollouts: list[Rollout]) -> Callable[[], None]:
    """What a validator does with one submission: read, check and grade."""
    version_digest = sha256_hex(b"version 0")
    lease = Lease(
        pool_digest=pool.digest(),
        lease_id="0-0",
        slot=0,
        attempt=0,
        node="worker",
        policy_version=0,
        policy_digest=version_digest,
        task_indices=tuple(lab.task_indices(pool, 0)),
        target_lengths=(0,) * pool.groups_per_slot,
        draw_seed="00" * 32,
        capability_class="any",
        issued_at_ms=0,
        expires_at_ms=1,
    )
    data = write_rollouts(rollouts, pool.digest())
    submission = Submission(
        pool_digest=pool.digest(),
        node=lease.node,
        lease_id=lease.lease_id,
        slot=0,
        attempt=0,
        policy_version=0,
        policy_digest=version_digest,
        file_key="rollouts/0-0",
        file_digest=sha256_hex(data),
        file_bytes=len(data),
        num_rollouts=len(rollouts),
        num_tokens=sum(len(rollout.completion_tokens) for rollout in rollouts),
    )
    config, tokenizer = lab.model.config, lab.model.tokenizer
    rules = JudgeRules(
        pool=pool,
        vocab_size=config.vocab_size,
        eos_token_ids=config.eos_token_ids,
        reserved_token_ids=lab.sampling.reserved_token_ids,
    )

    def verify() -> None:
        tasks = [lab.environment.task("train", index) for index in lease.task_indices]
        prompts = tuple(np.array(tokenizer.encode_chat(task.messages), dtype=np.int32) for task in tasks)

        def grade(claimed: Sequence[Rollout]) -> list[RewardResult]:
            worth = [
                lab.environment.grade(tasks[rollout.group], tokenizer.decode(rollout.completion_tokens.tolist()))
                for rollout in claimed
            ]
            return [
                RewardResult(group=rollout.group, sample=rollout.sample, reward=grade.reward, correct=grade.correct)
                for rollout, grade in zip(claimed, worth, strict=True)
            ]

        judgement = judge(
            submission,
            lease,
            data,
            rules,
            SlotEvidence(
                env=lab.environment.name, task_ids=tuple(task.task_id for task in tasks), prompt_tokens=prompts
            ),
            current_version=0,
            validator="validator",
            now_ms=0,
            grade=grade,
        )
        assert judgement.verdict.outcome is Outcome.ACCEPTED, judgement.evidence.detail

    return verify


def _median(function: Callable[[], Any], rounds: int) -> float:
    return statistics.median(cpu_time(function) for _ in range(rounds))


def _phases_text(phases: Phases) -> str:
    return (
        f"sampling {phases.sample_s * 1e3:.0f} ms and verifying {phases.verify_s * 1e3:.1f} ms a slot of "
        f"{phases.slot_tokens} tokens, training {phases.train_s * 1e3:.0f} ms and publishing "
        f"{phases.publish_s * 1e3:.1f} ms a version of {SLOTS_PER_BATCH} slots"
    )


# -- who loses work -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class DropCase:
    """A pool with fast and slow workers."""

    name: str
    slow_slot_versions: float
    """How many versions go by while the slowest workers sample a slot of mean length, if workers set the pace."""
    window_slots: int = 8


DROP_CASES = (
    DropCase(name="slow-slot-1-version", slow_slot_versions=1.0),
    DropCase(name="slow-slot-2-versions", slow_slot_versions=2.0),
    DropCase(name="slow-slot-4-versions", slow_slot_versions=4.0),
    DropCase(name="slow-slot-4-versions-in-order-of-arrival", slow_slot_versions=4.0, window_slots=0),
)


def drops() -> None:
    """Record the share of slots that were sampled and not trained on, by length and by speed of the worker."""
    for case in DROP_CASES:
        fates = [fate for seed in SEEDS for fate in drop_history(case, seed).fates]
        lengths = np.array([fate.num_tokens for fate in fates])
        edges = np.quantile(lengths, np.linspace(0, 1, 11)[1:-1])
        decile = np.searchsorted(edges, lengths, side="right")
        lost = np.array([fate.end != "trained" for fate in fates])
        by_decile = [round(float(lost[decile == d].mean()), 3) for d in range(10)]
        by_speed = {
            speed: round(float(lost[[fate.node.startswith(speed) for fate in fates]].mean()), 3) for speed in SPEEDS
        }
        tokens = {"sampled": float(lengths.mean()), "trained": float(lengths[~lost].mean())}
        ends = {end: sum(fate.end == end for fate in fates) for end in sorted({fate.end for fate in fates})}
        detail = {
            "by_length_decile": by_decile,
            "by_speed": by_speed,
            "mean_tokens_of_trained_over_sampled": round(tokens["trained"] / tokens["sampled"], 3),
            "ends": ends,
        }
        record(f"async/drops/{case.name}", float(lost.mean()), None, None, "share of slots", detail)
        print(f"  drops, {case.name}: {float(lost.mean()):.3f} {detail}", flush=True)


def drop_history(case: DropCase, seed: int, num_versions: int = 300) -> History:
    """Twelve workers of three speeds, slots of log-normal length; the workers set the pace.

    Time is in versions: workers finish `slots_per_batch` slots of mean length in about one unit.
    """
    workers = [
        SimWorker(name=f"{speed} {number}", slowness=slowness)
        for speed, slowness in SPEEDS.items()
        for number in range(NUM_PER_SPEED)
    ]
    mean_tokens = 256
    sample_s_per_token = case.slow_slot_versions / (max(SPEEDS.values()) * mean_tokens)
    rate = sum(1 / (worker.slowness * sample_s_per_token * mean_tokens) for worker in workers)
    slots_per_batch = max(1, round(rate))
    rules = pool_rules(
        max_staleness=MAX_STALENESS,
        max_outstanding_groups=BATCHES_OUTSTANDING * slots_per_batch,
        groups_per_slot=1,
        groups_per_batch=slots_per_batch,
    )
    generator = np.random.default_rng([seed, 1])
    lengths = generator.lognormal(
        np.log(mean_tokens) - LENGTH_SIGMA**2 / 2, LENGTH_SIGMA, size=num_versions * slots_per_batch * 2
    )
    return PoolSim(
        rules,
        workers,
        Costs(
            sample_s_per_token=sample_s_per_token,
            verify_s_per_token=sample_s_per_token / 1000,
            train_s=0.9,
            publish_s=0.05,
        ),
        seed=seed,
        slot_tokens=lambda slot: max(1, round(float(lengths[slot]))),
        window_slots=case.window_slots,
    ).run(num_versions)


# -- real processes -------------------------------------------------------------------------------------------------


def real() -> None:
    """`farflung run long-addition` with four workers that sleep, at max_staleness 0 and 4.

    Every worker samples for u seconds and then sleeps, slowness * u in all. In the synchronous run the trainer waits
    for the slowest one, which says what u is on this machine now; the rest of a version, b, keeps it busy. Then

        T_async = max(b, K / sum of 1 / (slowness * u))
    """
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as folder:
        rows = {staleness: _real_run(Path(folder), staleness) for staleness in (0, MAX_STALENESS)}
    sync_s, async_s = (_mean(rows[staleness], "time/step_s") for staleness in (0, MAX_STALENESS))
    sync_wait_s, async_wait_s = (_mean(rows[staleness], WAIT) for staleness in (0, MAX_STALENESS))
    unit_s = sync_wait_s / max(REAL_SLOWNESS)
    slots_per_s = sum(1 / (slowness * unit_s) for slowness in REAL_SLOWNESS)
    predicted = sync_s / max(sync_s - sync_wait_s, len(REAL_SLOWNESS) / slots_per_s)
    detail = {
        "slowness_of_workers": list(REAL_SLOWNESS),
        "versions": len(rows[0]),
        "synchronous_s_per_version": round(sync_s, 3),
        "asynchronous_s_per_version": round(async_s, 3),
        "trainer_waits_s_per_version": f"{sync_wait_s:.3f} synchronous, {async_wait_s:.3f} asynchronous",
        "mean_staleness": round(_mean(rows[MAX_STALENESS], "staleness/mean"), 2),
    }
    record("async/speed-up/real-processes", sync_s / async_s, predicted, "the formula", "x", detail)
    print(f"  real processes: {sync_s / async_s:.2f} x, predicted {predicted:.2f} x; {detail}", flush=True)


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def _real_run(folder: Path, max_staleness: int) -> list[Mapping[str, Any]]:
    """Rows of metrics.jsonl of the trained versions, without the first few."""
    name = f"staleness-{max_staleness}"
    batch = len(REAL_SLOWNESS) * GROUPS_PER_SLOT
    overrides = ", ".join(f"{{speed = {1 / slowness:.4f}}}" for slowness in REAL_SLOWNESS)
    settings = {
        "run.dir": folder,
        "run.name": name,
        "pool.max_staleness": max_staleness,
        "pool.groups_per_slot": GROUPS_PER_SLOT,
        "pool.groups_per_batch": batch,
        "pool.max_outstanding_groups": batch * (BATCHES_OUTSTANDING if max_staleness else 1),
        "supervisor.num_workers": len(REAL_SLOWNESS),
        "supervisor.worker_overrides": f"[{overrides}]",
        "trainer.max_versions": REAL_VERSIONS,
        "trainer.evaluation.every_versions": 10 * REAL_VERSIONS,
        "trainer.warm_start.target_accuracy": 0.05,
    }
    print(f"  real run at max_staleness {max_staleness} ...", flush=True)
    subprocess.run(
        [sys.executable, "-m", "farflung.cli.main", "run", "long-addition"]
        + [f"--{key}={value}" for key, value in settings.items()],
        check=True,
        timeout=REAL_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "train"][4:]
