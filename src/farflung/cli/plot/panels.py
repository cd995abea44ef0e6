"""Kinds of pictures other than lines: histogram, stacked bars, timeline of waits."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from farflung.cli.plot.lines import COLOURS
from farflung.cli.plot.runs import Run, number, plain
from farflung.cli.report.summary import staleness_histogram
from farflung.telemetry.metrics import MetricsRow

STEP_PARTS = ("wait_for_batch", "train", "evaluate", "publish")
NUM_TIME_CELLS = 120
MAX_NODES_SHOWN = 24
MAX_REASONS_SHOWN = 6


def draw_staleness(axes: Axes, runs: Sequence[Run]) -> bool:
    """Share of the rollouts that were trained on, by versions between sampling and training."""
    histograms = [(run.name, staleness_histogram(run.train)) for run in runs]
    drawn = [(name, counts) for name, counts in histograms if counts]
    width = 0.8 / max(len(drawn), 1)
    for index, (name, counts) in enumerate(drawn):
        total = sum(counts.values())
        offset = (index - (len(drawn) - 1) / 2) * width
        shares = [100 * count / total for count in counts.values()]
        axes.bar([each + offset for each in counts], shares, width, color=COLOURS[index % len(COLOURS)], label=name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("staleness, versions")
    axes.set_ylabel("% of rollouts")
    return bool(drawn)


def draw_step_time(axes: Axes, runs: Sequence[Run]) -> bool:
    """Mean seconds of a version by what the trainer did, a bar per run."""
    means = {run.name: {part: _mean(run.train, f"time/{part}_s") for part in STEP_PARTS} for run in runs if run.train}
    _stacked(axes, means, [part.replace("_", " ") for part in STEP_PARTS], list(STEP_PARTS))
    axes.set_xlabel("seconds per version")
    return any(value for parts in means.values() for value in parts.values())


def draw_without_gradient(axes: Axes, runs: Sequence[Run]) -> bool:
    """Groups that carried no gradient, by reason, a bar per run."""
    drops: dict[str, dict[str, float]] = {}
    for run in runs:
        last: Mapping[str, Any] = next(
            (row["drops"] for row in reversed(run.train) if isinstance(row.get("drops"), dict)), {}
        )
        drops[run.name] = {str(reason): float(count) for reason, count in last.items()}
    totals: dict[str, float] = {}
    for counts in drops.values():
        for reason, count in counts.items():
            totals[reason] = totals.get(reason, 0.0) + count
    reasons = sorted(totals, key=lambda reason: -totals[reason])[:MAX_REASONS_SHOWN]
    _stacked(axes, drops, [reason.replace("_", " ") for reason in reasons], reasons)
    axes.set_xlabel("groups since the start")
    return bool(reasons)


def draw_waits(axes: Axes, runs: Sequence[Run]) -> bool:
    """One run: how much each process waited over time; several: over all of it."""
    return _timeline(axes, runs[0]) if len(runs) == 1 else _idle_shares(axes, runs)


def _timeline(axes: Axes, run: Run) -> bool:
    names = list(dict.fromkeys(str(row.get("node")) for row in run.nodes))[:MAX_NODES_SHOWN]
    if not names:
        return False
    end_s = max(float(row["time_s"]) for row in run.nodes)
    edges_s = np.linspace(run.start_s, max(end_s, run.start_s + 1), NUM_TIME_CELLS + 1)
    shares = np.full((len(names), NUM_TIME_CELLS), np.nan)
    for index, name in enumerate(names):
        for begin_s, until_s, share in _intervals([row for row in run.nodes if row.get("node") == name]):
            cells = slice(*np.searchsorted(edges_s, (begin_s, until_s)))
            shares[index, cells] = share
    minutes = (edges_s[-1] - run.start_s) / 60
    image = axes.imshow(
        100 * shares,
        aspect="auto",
        interpolation="nearest",
        cmap="cividis",
        vmin=0,
        vmax=100,
        extent=(0, minutes, len(names) - 0.5, -0.5),
    )
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_xlabel("minutes since the start")
    axes.figure.colorbar(image, ax=axes, label="% of its time spent waiting", fraction=0.05)
    return True


def _intervals(rows: Sequence[MetricsRow]) -> list[tuple[float, float, float]]:
    """(from, to, share of waiting) between heartbeats; a process that began again starts a new count."""
    intervals = []
    for before, after in pairwise(rows):
        if before.get("session") != after.get("session"):
            continue
        worked, waited = ((number(after, name) or 0.0) - (number(before, name) or 0.0) for name in ("busy_s", "idle_s"))
        if worked >= 0 and waited >= 0 and worked + waited > 0:
            intervals.append((float(before["time_s"]), float(after["time_s"]), waited / (worked + waited)))
    return intervals


def _idle_shares(axes: Axes, runs: Sequence[Run]) -> bool:
    roles = ("trainer", "worker", "validator")
    means = {run.name: [run.usage.idle_ratio(role) for role in roles] for run in runs}
    width = 0.8 / len(means)
    for index, (name, ratios) in enumerate(means.items()):
        offset = (index - (len(means) - 1) / 2) * width
        places = [place + offset for place in range(len(roles))]
        axes.bar(places, [100 * (ratio or 0.0) for ratio in ratios], width, color=COLOURS[index % 7], label=name)
    axes.set_xticks(range(len(roles)), [f"{role}s" if role != "trainer" else role for role in roles])
    axes.set_ylabel("% of its time spent waiting")
    return any(ratio is not None for ratios in means.values() for ratio in ratios)


def _stacked(
    axes: Axes, values: Mapping[str, Mapping[str, float]], labels: Sequence[str], parts: Sequence[str]
) -> None:
    names = list(values)[::-1]
    left = np.zeros(len(names))
    for index, (part, label) in enumerate(zip(parts, labels, strict=True)):
        widths = np.array([values[name].get(part, 0.0) for name in names])
        axes.barh(names, widths, left=left, color=COLOURS[index % 7], label=label, height=0.6)
        left += widths
    if len(names) == 1:
        axes.set_ylim(-1, 1)


def _mean(rows: Sequence[MetricsRow], name: str) -> float:
    values = [value for row in rows if (value := number(row, name)) is not None]
    return sum(values) / len(values) if values else 0.0
