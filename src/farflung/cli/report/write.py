"""Everything that a run leaves for people, from the files that its roles wrote."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from farflung.cli.report.summary import NUM_REWARD_VERSIONS, Summary, summarize
from farflung.cli.report.usage import fold
from farflung.cli.run_folder import RunFolder
from farflung.cli.view import words
from farflung.telemetry.metrics import read_json_lines, read_metrics

MAX_EVENTS = 8
MAX_EVENT_CHARS = 300
HOPELESS_ACCURACY = 0.02
HOPELESS_SHARE = 0.1
"""Of the accepted tokens, at most so many taught anything."""


def write_report(folder: RunFolder, *, title: str, seed: int, config_digest: str) -> Summary:
    """Write summary.json, curves.png and samples.html; each is whole or absent.

    Raises:
        OSError: the disk refuses.
    """
    summary = summarize(
        read_metrics(folder.metrics), fold(read_metrics(folder.usage)), seed=seed, config_digest=config_digest
    )
    _publish(folder.summary, lambda path: path.write_text(json.dumps(summary.to_dict(), indent=2) + "\n"))
    _write_pictures(folder, title)
    return summary


def as_text(summary: Summary, folder: RunFolder, events: Sequence[str] = (), *, is_local: bool = False) -> str:
    """A few lines for the terminal, what was learned first.

    Args:
        events: what went wrong on the way, oldest first.
        is_local: samplers of its own are nobody's workers.
    """
    lines = []
    if summary.initial_reward is not None and summary.final_reward is not None:
        lines.append(
            f"reward {summary.initial_reward:.3f} -> {summary.final_reward:.3f} "
            f"(first and last {NUM_REWARD_VERSIONS} batches; the loss stays near 0 and says nothing)"
        )
    if summary.initial_accuracy is not None and summary.final_accuracy is not None:
        lines.append(
            f"held-out accuracy {summary.initial_accuracy:.3f} -> {summary.final_accuracy:.3f} "
            f"({summary.eval_tasks} tasks)"
        )
    pace = f"{summary.versions} versions in {words.duration(summary.wall_s)}"
    lines.append(
        f"{pace}, {words.count(summary.cpu_s)} CPU seconds; {words.count(summary.tokens_trained)} tokens trained on"
    )
    if summary.staleness_mean is not None:
        lines.append(f"staleness mean {summary.staleness_mean:.2f}, max {summary.staleness_max}")
    waits = [
        ("trainer", summary.trainer_idle_ratio),
        ("samplers" if is_local else "workers", summary.worker_idle_ratio),
    ]
    shown = [f"{who} {words.percent(ratio)}" for who, ratio in waits if ratio is not None]
    if shown:
        lines.append(f"time spent waiting for others: {', '.join(shown)}")
    if _hardly_learns(summary):
        lines.append(
            "the policy hardly ever solves a task, so there is nothing to reinforce: set trainer.warm_start.max_steps, "
            "or start from another model (trainer.model.path)"
        )
    if summary.grading_faults:
        faults = ", ".join(f"{fault} {number}" for fault, number in summary.grading_faults.items())
        lines.append(f"not graded: {faults} completions")
    if summary.drops:
        lines.append("not trained on: " + ", ".join(f"{reason} {number}" for reason, number in summary.drops.items()))
    if events:
        lines += ["on the way:", *(f"  {words.plain(event, MAX_EVENT_CHARS)}" for event in events[:MAX_EVENTS])]
        if len(events) > MAX_EVENTS:
            lines.append(f"  and {len(events) - MAX_EVENTS} more, in {folder.logs}")
    made = (folder.model, folder.metrics, folder.summary, folder.curves, folder.samples_page)
    lines += ["", *(f"  {path}" for path in made if path.exists())]
    return "\n".join(lines)


def _hardly_learns(summary: Summary) -> bool:
    """Solves nothing, and nearly all groups were dropped since their rollouts earned the same."""
    return (
        summary.final_accuracy is not None
        and summary.final_accuracy <= HOPELESS_ACCURACY
        and summary.drops.get("no_signal", 0) > 0
        and summary.tokens_trained <= HOPELESS_SHARE * summary.tokens_accepted
    )


def _write_pictures(folder: RunFolder, title: str) -> None:
    from farflung.cli.plot.families import Look  # matplotlib takes a second to import
    from farflung.cli.plot.page import write_page
    from farflung.cli.plot.runs import load_run
    from farflung.cli.report.samples import write_samples

    _publish(folder.curves, lambda path: write_page(path, [load_run(folder)], Look(), title=title))
    _publish(folder.samples_page, lambda path: write_samples(path, read_json_lines(folder.samples), title=title))


def _publish(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside and rename, so that half a file is never seen under its name."""
    unfinished = path.with_name(f".{path.name}.tmp{path.suffix}")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
