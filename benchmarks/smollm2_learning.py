"""What SmolLM2-135M-Instruct learns from the shipped configurations: two commands and an evaluation, as a user does it.

Held-out tasks before and after, the same tasks and seeds for both, sampled as `farflung eval` does. Half an hour a
configuration on two busy cores, so it is no part of `make bench` as a whole: `make bench ARGS=smollm2_learning`. Needs
the package that ships the model (docs/smollm2.md).
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import record

MODEL = "models/smollm2-135m-instruct"
NUM_TASKS, NUM_SAMPLES = 100, 2
AVERAGE = f"avg@{NUM_SAMPLES}"
RUN_TIMEOUT_S = 3 * 3600


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A shipped configuration and how its task is evaluated."""

    config: str
    env: str
    args: Mapping[str, str | int]
    max_tokens: int
    temperature: float


EXPERIMENTS = (
    Experiment(
        config="smollm2",
        env="instructions",
        args={"forms": "words list json opening keyword"},
        max_tokens=20,
        temperature=0.7,
    ),
    Experiment(
        config="smollm2-needle",
        env="reasoning-gym:needle_haystack",
        args={"answer_format": "plain", "min_num_statements": 3, "max_num_statements": 4},
        max_tokens=6,
        temperature=1.0,
    ),
)


def run() -> None:
    """Import the model, then train and evaluate each."""
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as name:
        folder = Path(name)
        _farflung(folder, "model", "import", "smollm2-135m-instruct")
        for experiment in EXPERIMENTS:
            print(f"{experiment.config} ...", flush=True)
            _farflung(folder, "run", experiment.config, "--local")
            measure(folder, experiment)


def measure(folder: Path, experiment: Experiment) -> None:
    """Evaluate what has been trained in `folder` and record it."""
    run_folder = Path("runs", experiment.config)
    before = _evaluate(folder, experiment, MODEL)
    after = _evaluate(folder, experiment, str(run_folder / "model"))
    summary = json.loads((folder / run_folder / "summary.json").read_text())
    start = f"{summary['initial_accuracy']:.3f} -> {summary['final_accuracy']:.3f} of {summary['eval_tasks']} tasks"
    detail = {
        "before": _shown(before),
        "after": _shown(after),
        "tasks": before["num_tasks"],
        "samples of each": NUM_SAMPLES,
        "temperature": experiment.temperature,
        "in the run, after its warm start if it has one": start,
        "reward of the training batches": f"{summary['initial_reward']:.3f} -> {summary['final_reward']:.3f}",
        "versions": summary["versions"],
        "seed": summary["seed"],
        "minutes": round(summary["wall_s"] / 60, 1),
        "cpu_s": round(summary["cpu_s"]),
        "env": experiment.env,
        "args": json.dumps(experiment.args),
    }
    record(f"learning/{experiment.config}/held-out", after[AVERAGE]["value"], None, None, "share", detail)


def _evaluate(folder: Path, experiment: Experiment, model: str) -> dict[str, Any]:
    settings = [part for key, value in experiment.args.items() for part in (f"--env.{key}", str(value))]
    output = _farflung(
        folder,
        *("eval", model, "--env", experiment.env, *settings, "--json"),
        *("--tasks", str(NUM_TASKS), "--samples", str(NUM_SAMPLES)),
        *("--max-tokens", str(experiment.max_tokens), "--temperature", str(experiment.temperature)),
    )
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def _shown(result: Mapping[str, Any]) -> str:
    share = result[AVERAGE]
    return f"{share['value']:.3f} ({share['low']:.3f} to {share['high']:.3f}), reward {result['mean_reward']:.3f}"


def _farflung(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "farflung.cli.main", *arguments],
        cwd=folder,
        check=True,
        timeout=RUN_TIMEOUT_S,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return done.stdout
