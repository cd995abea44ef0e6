"""The demo as a user runs it: does every seed learn, how long does it take, who waits, and what do workers add?

Each run is `farflung run demo` in its own folder with all its processes. Wall-clock figures are of the machine as it
was then; run them with nothing else going on.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import record

SEEDS = (0, 1, 2, 3, 4)
WORKER_COUNTS = (1, 2, 4)
"""Of equal speed, so that only their number differs."""
RUN_TIMEOUT_S = 900


def run() -> None:
    """Five seeds as shipped, then one seed with 1, 2 and 4 workers."""
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as folder:
        by_seed = {seed: _demo(Path(folder), f"seed-{seed}", seed=seed) for seed in SEEDS}
        by_workers = {
            count: _demo(
                Path(folder),
                f"workers-{count}",
                seed=0,
                settings=[f"--supervisor.num_workers={count}", f"--supervisor.worker_overrides={[{}] * count}"],
            )
            for count in WORKER_COUNTS
        }
    _record_seeds(by_seed)
    for count, summary in by_workers.items():
        record(
            f"demo/wall-clock/workers-{count}",
            summary["wall_s"],
            None,
            None,
            "s",
            _shares(summary) | {"tokens_per_s": round(summary["tokens_accepted"] / summary["wall_s"])},
        )


def _demo(folder: Path, name: str, *, seed: int, settings: list[str] | None = None) -> dict[str, Any]:
    print(f"demo {name} ...", flush=True)
    command = [sys.executable, "-m", "farflung.cli.main", "run", "demo", "--run.dir", str(folder), "--run.name", name]
    subprocess.run(
        [*command, f"--run.seed={seed}", *(settings or [])],
        check=True,
        timeout=RUN_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    summary: dict[str, Any] = json.loads((folder / name / "summary.json").read_text())
    print(
        f"  accuracy {summary['initial_accuracy']:.3f} -> {summary['final_accuracy']:.3f} in {summary['wall_s']:.0f} s"
    )
    return summary


def _record_seeds(by_seed: dict[int, dict[str, Any]]) -> None:
    final = {str(seed): round(summary["final_accuracy"], 3) for seed, summary in by_seed.items()}
    initial = {str(seed): round(summary["initial_accuracy"], 3) for seed, summary in by_seed.items()}
    detail = {"final": final, "initial": initial, "eval_tasks": by_seed[SEEDS[0]]["eval_tasks"]}
    record("demo/held-out-accuracy/lowest-of-5-seeds", min(final.values()), None, None, "share", detail)
    _record_median("demo/wall-clock", by_seed, "wall_s", "s")
    _record_median("demo/cpu", by_seed, "cpu_s", "CPU-s")
    _record_median("demo/trainer-idle-ratio", by_seed, "trainer_idle_ratio", "share")
    _record_median("demo/worker-idle-ratio", by_seed, "worker_idle_ratio", "share")
    _record_median("demo/staleness-mean", by_seed, "staleness_mean", "versions")


def _record_median(name: str, by_seed: dict[int, dict[str, Any]], key: str, unit: str) -> None:
    values = [summary[key] for summary in by_seed.values()]
    record(name, statistics.median(values), None, None, unit, {"per_seed": [round(value, 3) for value in values]})


def _shares(summary: dict[str, Any]) -> dict[str, Any]:
    return {
        key: round(summary[key], 3)
        for key in ("final_accuracy", "trainer_idle_ratio", "worker_idle_ratio", "staleness_mean")
    }
