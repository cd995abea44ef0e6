"""Does old work harm? Accuracy at equal samples for staleness 0 to 16, with and without a correction.

Stated before any run:

    n = 5 paired seeds: the same first weights, tasks, draws and learning rates in every arm of a seed
    d = accuracy(arm, seed) - accuracy(staleness 0, seed)        held-out, 1,024 tasks, temperature 1, last version
    an arm is *equivalent* to staleness 0 if the 90 % interval of the mean of d lies within +-0.03 (TOST at 5 %, t)
    an arm is *worse* if that interval lies below -0.03; anything else is *not shown*

Objectives, by the trainer's settings (one optimizer step a version, so the trainer's own policy is where it began):

    decoupled   name = "grpo" as shipped: weight pi_prox / mu within [0.5, 5.0], else masked
    naive       name = "ppo", anchor = "decoupled", guard off: the clip is around the start of the version and nothing
                corrects for the policy that sampled, as when a recomputed "old" is taken for the behaviour policy
    behaviour   name = "grpo", anchor = "behaviour": ratio pi / mu, clipped (two policies)
    gepo, gspo  as named, defaults of their papers

At staleness 0 all of them have ratio and weight 1, so one arm per seed is the reference of all.

Lags are exact (`lagged.constant_lag`): the batch of version v is sampled by version max(0, v - s). The delayed arms run
along a history of `pool_sim`: workers whose work is late by log-normal delays, nothing dropped, so one batch mixes
versions. Finished arms are appended to `staleness.jsonl` at once; a run goes on where the last one stopped.
"""

import json
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.lagged import Lab, Outcome, Schedule, Task, constant_lag
from benchmarks.pool_sim import Costs, PoolSim, SimWorker, lognormal
from benchmarks.record import record
from farflung.trainer.config import ObjectiveConfig, WarmStartConfig
from farflung.wire.canonical import sha256_hex

MARGIN = 0.03
"""Of equivalence, in accuracy."""
T_95 = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833}
"""Student's t, 95 % quantile, by degrees of freedom."""
SEEDS = (0, 1, 2, 3, 4)
LAGS = (1, 2, 4, 8, 16)
LONG_LAGS = (4, 8, 16)
DELAYS = (4, 8, 24)
"""Mean delay of a slot, in versions."""
DELAYED_OBJECTIVES = ("gepo", "behaviour", "gspo")
DELAY_SIGMA = 1.0
"""Log-standard deviation: one slot in twenty takes 3 times the mean, one in a hundred 6 times."""
SLOTS_PER_BATCH = 4

ARMS_FILE = Path(__file__).with_name("staleness.jsonl")
CACHE = Path(__file__).with_name(".cache")

TASKS = {
    "sort-digits": Task(
        env="sort-digits",
        args={"num_digits": 6},
        warm_start=WarmStartConfig(max_steps=400, target_accuracy=0.3, batch_size=64, lr=4e-3),
        max_prompt_tokens=16,
        max_completion_tokens=8,
        groups_per_batch=32,
        num_versions=120,
        lr=5e-4,
    ),
    "long-addition": Task(
        env="long-addition",
        args={"num_digits": 3},
        warm_start=WarmStartConfig(max_steps=1500, target_accuracy=0.3, batch_size=64, lr=4e-3, eval_every_steps=20),
        max_prompt_tokens=16,
        max_completion_tokens=36,
        groups_per_batch=16,
        num_versions=100,
        lr=2e-4,
    ),
}
"""The demo's task and model, and one that needs its 32 tokens of thought; learning rates as shipped."""

OBJECTIVES = {
    "decoupled": ObjectiveConfig(),
    "naive": ObjectiveConfig(name="ppo", params={"anchor": "decoupled", "clip_high": 0.28, "delta": 4.0}),
    "behaviour": ObjectiveConfig(anchor="behaviour"),
    "gepo": ObjectiveConfig(name="gepo"),
    "gspo": ObjectiveConfig(name="gspo"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One run."""

    task: str
    objective: str
    staleness: int = 0
    """Exact lag, or the mean delay in versions where `is_delayed`."""
    is_delayed: bool = False
    lr: float
    seed: int

    @property
    def key(self) -> str:
        """Names the run and every setting that it depends on."""
        task = asdict(TASKS[self.task])
        task["warm_start"] = task["warm_start"].model_dump(exclude_defaults=True)
        objective = OBJECTIVES[self.objective].model_dump(exclude_defaults=True)
        return sha256_hex(json.dumps([asdict(self), task, objective], sort_keys=True).encode())[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Paired differences to a reference arm."""

    mean: float
    low: float
    high: float

    @property
    def finding(self) -> str:
        if self.low >= -MARGIN and self.high <= MARGIN:
            return "equivalent"
        if self.high < -MARGIN:
            return "worse"
        if self.low > MARGIN:
            return "better"
        return "not shown"

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}] {self.finding}"


def compare(values: Mapping[int, float], reference: Mapping[int, float]) -> Comparison:
    """Mean and 90 % interval of the differences over the seeds that both have.

    Raises:
        ValueError: fewer than two common seeds.
    """
    differences = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())]
    if len(differences) < 2:
        raise ValueError(f"{len(differences)} seeds in common: an interval needs two")
    mean = statistics.fmean(differences)
    half = T_95[len(differences) - 1] * statistics.stdev(differences) / len(differences) ** 0.5
    return Comparison(mean=mean, low=mean - half, high=mean + half)


def plan() -> Iterator[Arm]:
    """Every arm, what matters most first, seed by seed, so that a run that was cut short has whole seeds."""
    for seed in SEEDS:
        for task in TASKS:
            yield from _lagged(task, seed, ("decoupled", "naive"), LAGS, TASKS[task].lr)
    for seed in SEEDS:
        yield from _lagged("sort-digits", seed, ("decoupled", "naive"), LONG_LAGS, TASKS["sort-digits"].lr / 2)
        for delay in DELAYS:
            for objective in DELAYED_OBJECTIVES:
                yield delayed_arm(objective, delay, seed)
        for task in TASKS:
            yield from _lagged(task, seed, ("behaviour",), LONG_LAGS, TASKS[task].lr)


def _lagged(task: str, seed: int, objectives: tuple[str, ...], lags: tuple[int, ...], lr: float) -> Iterator[Arm]:
    if "decoupled" in objectives:
        yield Arm(task=task, objective="decoupled", lr=lr, seed=seed)
    for lag in lags:
        for objective in objectives:
            yield Arm(task=task, objective=objective, staleness=lag, lr=lr, seed=seed)


def delayed_arm(objective: str, delay: int, seed: int) -> Arm:
    """A run along a history of late workers."""
    lr = TASKS["sort-digits"].lr
    return Arm(task="sort-digits", objective=objective, staleness=delay, is_delayed=True, lr=lr, seed=seed)


def delayed_schedule(lab: Lab, delay_versions: int, seed: int) -> Schedule:
    """A pool whose workers are late by log-normal delays of this mean; it has as many as keep the trainer busy.

    Little's law: slots on their way = mean delay in versions * slots per version, hence that many workers.
    """
    version_s = 1.0
    workers = [
        SimWorker(name=f"worker-{number}", delay_s=lognormal(delay_versions * version_s, DELAY_SIGMA))
        for number in range(delay_versions * SLOTS_PER_BATCH)
    ]
    task = lab.task
    # A window beyond every delay: nothing is dropped, so that all objectives see the same number of samples.
    rules = lab.pool(task.groups_per_batch // SLOTS_PER_BATCH, max_staleness=task.num_versions)
    costs = Costs(sample_s_per_token=0.0, verify_s_per_token=0.0, train_s=0.01)
    sim = PoolSim(
        rules, workers, costs, seed=seed, slot_tokens=lambda _: 1, window_slots=0, num_validators=len(workers)
    )
    return sim.run(task.num_versions).schedule


def run() -> None:
    """Run the arms that are missing, then record what all of them say."""
    torch.set_num_threads(1)
    arms = list(plan())
    done = load()
    missing = [arm for arm in arms if arm.key not in done]
    print(f"staleness: {len(arms)} arms, {len(arms) - len(missing)} done", flush=True)
    labs: dict[tuple[str, int], Lab] = {}
    started_s = time.monotonic()
    for count, arm in enumerate(missing):
        lab_key = (arm.task, arm.seed)
        if lab_key not in labs:
            labs[lab_key] = Lab(TASKS[arm.task], arm.seed, cache=CACHE)
        cpu_s = time.process_time()
        outcome = _run(labs[lab_key], arm)
        line = _line(arm, outcome, time.process_time() - cpu_s)
        with ARMS_FILE.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        done[arm.key] = line
        left_s = (time.monotonic() - started_s) / (count + 1) * (len(missing) - count - 1)
        print(
            f"  {count + 1}/{len(missing)} {arm.task} {arm.objective} {'delay' if arm.is_delayed else 'lag'} "
            f"{arm.staleness} lr {arm.lr:g} seed {arm.seed}: {outcome.initial:.3f} -> {outcome.accuracy:.3f} "
            f"({line['cpu_s']} s; {left_s / 60:.0f} min left)",
            flush=True,
        )
    record_all(done)


def _run(lab: Lab, arm: Arm) -> Outcome:
    schedule = (
        delayed_schedule(lab, arm.staleness, arm.seed)
        if arm.is_delayed
        else constant_lag(arm.staleness, lab.task.num_versions)
    )
    return lab.run(schedule, OBJECTIVES[arm.objective], lr=arm.lr)


def _line(arm: Arm, outcome: Outcome, cpu_s: float) -> dict[str, Any]:
    every = max(1, len(outcome.rewards) // 20)
    raw = "sampling/importance_sampling_ratio/mean"
    return {
        "key": arm.key,
        **asdict(arm),
        "initial": round(outcome.initial, 4),
        "accuracy": round(outcome.accuracy, 4),
        "mean_staleness": round(outcome.mean_staleness, 2),
        "max_staleness": outcome.max_staleness,
        "rewards": [
            round(statistics.fmean(outcome.rewards[i : i + every]), 3) for i in range(0, len(outcome.rewards), every)
        ],
        "weight_mean": round(statistics.fmean(m[raw] for m in outcome.metrics if raw in m), 4),
        "cpu_s": round(cpu_s, 1),
    }


def load(path: Path = ARMS_FILE) -> dict[str, dict[str, Any]]:
    """Finished arms by key. A last line that was cut off by a kill counts as not finished."""
    done: dict[str, dict[str, Any]] = {}
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            done[line["key"]] = line
    return done


def by_seed(done: Mapping[str, Mapping[str, Any]], arm: Arm, field: str = "accuracy") -> dict[int, float]:
    """Seed -> figure of the finished runs of this arm."""
    keys = {seed: replace(arm, seed=seed).key for seed in SEEDS}
    return {seed: done[key][field] for seed, key in keys.items() if key in done}


def record_all(done: Mapping[str, Mapping[str, Any]]) -> None:
    """Record what the finished runs say; arms with fewer than two seeds are left out."""
    for task, objective, lr in _rows():
        _record_lags(done, task, objective, lr)
    for delay in DELAYS:
        _record_delays(done, delay)


def _record_lags(done: Mapping[str, Mapping[str, Any]], task: str, objective: str, lr: float) -> None:
    """One figure: accuracy at the largest lag beside that at staleness 0; all lags in the detail."""
    reference = by_seed(done, Arm(task=task, objective="decoupled", lr=lr, seed=0))
    by_lag = {lag: by_seed(done, Arm(task=task, objective=objective, staleness=lag, lr=lr, seed=0)) for lag in LAGS}
    found = {lag: values for lag, values in by_lag.items() if len(values) > 1}
    if not found:
        return
    record(
        f"staleness/{task}/{objective}/lr-{lr:g}/staleness-{max(found)}",
        statistics.fmean(found[max(found)].values()),
        statistics.fmean(reference.values()),
        "staleness 0",
        "accuracy",
        {
            "staleness 0": _per_seed(reference),
            **{
                f"staleness {lag}": f"{_per_seed(values)}; difference {compare(values, reference)}"
                for lag, values in found.items()
            },
        },
    )


def _record_delays(done: Mapping[str, Mapping[str, Any]], delay: int) -> None:
    """One figure: GEPO beside GRPO anchored at the sampler, on the same histories."""
    arms = {name: delayed_arm(name, delay, seed=0) for name in DELAYED_OBJECTIVES}
    by_name = {name: by_seed(done, arm) for name, arm in arms.items()}
    if min(len(values) for values in by_name.values()) < 2:
        return
    gepo, grpo, gspo = by_name["gepo"], by_name["behaviour"], by_name["gspo"]
    record(
        f"staleness/sort-digits/log-normal-delay-{delay}/gepo",
        statistics.fmean(gepo.values()),
        statistics.fmean(grpo.values()),
        "grpo, behaviour",
        "accuracy",
        {
            "mean_staleness": round(statistics.fmean(by_seed(done, arms["gepo"], "mean_staleness").values()), 2),
            "max_staleness": int(max(by_seed(done, arms["gepo"], "max_staleness").values())),
            **{name: _per_seed(values) for name, values in by_name.items()},
            "gepo - grpo": str(compare(gepo, grpo)),
            "gspo - grpo": str(compare(gspo, grpo)),
            "gepo - gspo": str(compare(gepo, gspo)),
        },
    )


def _rows() -> Iterator[tuple[str, str, float]]:
    for task in TASKS:
        for objective in ("decoupled", "behaviour", "naive"):
            yield task, objective, TASKS[task].lr
    for objective in ("decoupled", "naive"):
        yield "sort-digits", objective, TASKS["sort-digits"].lr / 2


def _per_seed(values: Mapping[int, float]) -> str:
    each = ", ".join(f"{value:.3f}" for _, value in sorted(values.items()))
    return f"{statistics.fmean(values.values()):.3f} ({each})"
