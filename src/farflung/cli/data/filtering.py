"""`farflung data filter DATASET --model M`: how often a model solves each task, and the tasks in between.

Samples are kept as `farflung eval` keeps them, so that an interrupted filter goes on and a further one extends it.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure

from farflung.cli.evaluate import checked_config, sample_into
from farflung.data.task_row import TaskWriter, read_manifest, read_rows
from farflung.envs.dataset import Dataset
from farflung.envs.graders.registry import require_ready
from farflung.errors import UserError
from farflung.evaluation.records import SampleRow
from farflung.evaluation.suspects import suspects
from farflung.wire.pool import EnvArg

INTELLECT_2 = "0.125:0.5"
"""Share of 8 samples that INTELLECT-2 kept (R1-Distill-Qwen-7B, arXiv 2505.07291)."""


def run_filter(arguments: Namespace) -> int:
    low, high = _bounds(arguments.keep)
    source, out, model = Path(arguments.dataset), Path(arguments.out), Path(arguments.model)
    if out.exists():
        raise UserError(f"{out} exists: choose another --out, or remove it")
    before = read_manifest(source)
    env_args: dict[str, EnvArg] = {"path": str(source), "sha256": before.sha256, "heldout": False}
    environment = Dataset(0, env_args)
    require_ready(environment.graders)
    config = checked_config(
        {
            "env": environment.name,
            "tasks": environment.num_tasks,
            "samples": arguments.samples,
            "split": "train",
            "max_tokens": arguments.max_tokens,
            "temperature": arguments.temperature,
        }
    )
    work = Path(arguments.work) if arguments.work else out.with_name(f"{out.name}-samples")
    rows, num_skipped = sample_into(work, model, config, environment, env_args)
    rates = solve_rates(rows)
    kept = {task_id for task_id, rate in rates.items() if low <= rate <= high}
    with TaskWriter(out) as writer:
        for row in read_rows(source):
            if f"train/{row.id}" in kept:
                writer.add(row)
        below, above = (sum(rate < low for rate in rates.values()), sum(rate > high for rate in rates.values()))
        skipped = {
            f"solved less often than {low:g}": below,
            f"solved more often than {high:g}": above,
            "cannot be graded": len({row.task_id for row in rows}) - len(rates),
            "prompt too long for the model": num_skipped,
        }
        manifest = writer.finish(
            made_by=f"data filter --samples {arguments.samples} --keep {low:g}:{high:g}",
            licence=before.licence,
            sources=before.sources,
            skipped={reason: count for reason, count in skipped.items() if count},
        )
    (work / "solve_rates.json").write_text(json.dumps(rates, indent=0) + "\n")
    doubtful = suspects(rows)
    (work / "suspects.jsonl").write_text("".join(json.dumps(asdict(suspect)) + "\n" for suspect in doubtful))
    picture = work / "solve_rates.png"
    draw_rates(rates, low, high, picture)
    sys.stdout.write(
        f"{out}: {manifest.num_tasks} of {len(rates)} tasks are solved in {low:.1%} to {high:.1%} of "
        f"{arguments.samples} samples\nsha256 {manifest.sha256}\npicture: {picture}\n"
    )
    if doubtful:
        sys.stdout.write(
            f"{len(doubtful)} tasks are never solved although most samples agree on another answer: look at their "
            f"references, {work / 'suspects.jsonl'}\n"
        )
    return 0


def solve_rates(rows: list[SampleRow]) -> dict[str, float]:
    """Task -> share of its graded samples that are correct; absent where none could be graded."""
    graded: dict[str, list[float]] = {}
    for row in rows:
        if row.correct is not None:
            graded.setdefault(row.task_id, []).append(row.correct)
    return {task_id: sum(values) / len(values) for task_id, values in graded.items()}


def draw_rates(rates: Mapping[str, float], low: float, high: float, path: Path) -> None:
    """How many tasks are solved how often; what is kept is shaded."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(low, high, color="#1b7f5c", alpha=0.15)
    axes.hist(list(rates.values()), bins=[number / 16 for number in range(18)], color="#35618f")
    axes.set_xlabel("share of samples that solve the task")
    axes.set_ylabel("tasks")
    figure.savefig(path, dpi=130)


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 <= low <= high <= 1:
        raise UserError(f"--keep is {text}: write LOW:HIGH with 0 <= LOW <= HIGH <= 1, for example {INTELLECT_2}")
    return low, high
