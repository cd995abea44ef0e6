"""Who waits for whom: shares over time, shares in all, and a timeline of what each process did when."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from farflung.cli.plot.axis import time_unit
from farflung.cli.plot.bars import share_bar
from farflung.cli.plot.families import Family, Look
from farflung.cli.plot.runs import Run, number, plain
from farflung.telemetry.metrics import MetricsRow

NUM_TIME_CELLS = 120
MAX_NODES_SHOWN = 24
NUM_VERSIONS_SHOWN = 14
MIN_WINDOW_S, MAX_WINDOW_S = 5.0, 300.0
WINDOW_AT = 0.6
"""Of a run's versions, the one that the timeline shows: past the start, before the end."""
ROLES = ("trainer", "worker", "validator")
ORDER = ("trainer", "sampler", "worker", "validator")
"""Beginnings of the names of processes, from the top of a picture."""

# Okabe and Ito's colours again; waiting is light, since it is what one looks for.
ACTIVITY_COLOURS = {
    "training": "#0072B2",
    "evaluating": "#56B4E9",
    "publishing": "#000000",
    "warm start": "#E69F00",
    "sampling": "#009E73",
    "submitting": "#E69F00",
    "loading weights": "#F0E442",
    "judging": "#CC79A7",
}
WAITING, OTHER = "#E2E2E2", "#9A9A9A"


def draw_waits(axes: Axes, group: Sequence[Family], _look: Look) -> bool:
    """One run: how much each process waited over time; several: over all of it."""
    is_one = len(group) == 1 and len(group[0].runs) == 1
    return _over_time(axes, group[0].runs[0]) if is_one else _idle_shares(axes, group)


def draw_timeline(axes: Axes, group: Sequence[Family], _look: Look) -> bool:
    """What each process of the first run did during some versions; lines are versions as they were made."""
    run = group[0].runs[0]
    names = _by_role([name for name, intervals in run.intervals.items() if intervals])
    if not names:
        return False
    start_s, end_s = _window(run)
    legend: dict[str, str] = {}
    for place, name in enumerate(names):
        for interval in run.intervals[name]:
            begin_s, until_s = max(interval.start_s, start_s), min(interval.end_s, end_s)
            if begin_s < until_s:
                kind, colour = _kind(interval.activity)
                legend[kind] = colour
                axes.broken_barh([(begin_s - start_s, until_s - begin_s)], (place - 0.38, 0.76), color=colour, lw=0)
    for row in run.train:
        if start_s <= row["time_s"] <= end_s:
            axes.axvline(row["time_s"] - start_s, color="#D55E00", linewidth=0.8, alpha=0.8)
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, end_s - start_s)
    unit, unit_s = time_unit([run])
    axes.set_xlabel(f"seconds, from {run.elapsed_s(start_s) / unit_s:.1f} {unit} into the run; lines: new versions")
    order = [*ACTIVITY_COLOURS, "other", "waiting"]
    shown = sorted(legend, key=order.index)
    axes.legend(
        handles=[Patch(color=legend[kind], label=kind) for kind in shown],
        loc="lower right",
        bbox_to_anchor=(1.0, 0.98),
        ncols=len(shown),
    )
    return bool(legend)


def _kind(activity: str) -> tuple[str, str]:
    if activity.startswith("waiting"):
        return "waiting", WAITING
    return (activity, ACTIVITY_COLOURS[activity]) if activity in ACTIVITY_COLOURS else ("other", OTHER)


def _window(run: Run) -> tuple[float, float]:
    """Some versions past the middle of the run; all of one that has made none."""
    times_s = [row["time_s"] for row in run.train]
    ends = [interval.end_s for intervals in run.intervals.values() for interval in intervals]
    if len(times_s) < 2:
        return run.start_s, min(max(ends), run.start_s + MAX_WINDOW_S)
    middle_s = times_s[int(WINDOW_AT * (len(times_s) - 1))]
    step_s = float(np.median(np.diff(times_s)))
    width_s = min(MAX_WINDOW_S, max(MIN_WINDOW_S, NUM_VERSIONS_SHOWN * step_s))
    return middle_s - width_s / 2, middle_s + width_s / 2


def _over_time(axes: Axes, run: Run) -> bool:
    names = _by_role(list(dict.fromkeys(row["node"] for row in run.nodes)))
    if not names:
        return False
    unit, unit_s = time_unit([run])
    last_s = max(run.elapsed_s(row["time_s"]) for row in run.nodes)
    edges_s = np.linspace(0.0, max(last_s, 1.0), NUM_TIME_CELLS + 1)
    shares = np.full((len(names), NUM_TIME_CELLS), np.nan)
    for index, name in enumerate(names):
        for begin_s, until_s, share in _shares([row for row in run.nodes if row["node"] == name]):
            cells = slice(*np.searchsorted(edges_s, (run.elapsed_s(begin_s), run.elapsed_s(until_s))))
            shares[index, cells] = share
    image = axes.imshow(
        100 * shares,
        aspect="auto",
        interpolation="nearest",
        cmap="YlOrBr",
        vmin=0,
        vmax=100,
        extent=(0, edges_s[-1] / unit_s, len(names) - 0.5, -0.5),
    )
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_xlabel(f"{unit} since the start")
    share_bar(axes, image)
    return True


def _by_role(names: Sequence[str]) -> list[str]:
    """In `ORDER`; at most `MAX_NODES_SHOWN`."""

    def order(name: str) -> tuple[int, str]:
        return next((place for place, role in enumerate(ORDER) if name.startswith(role)), len(ORDER)), name

    return sorted(names, key=order)[:MAX_NODES_SHOWN]


def _shares(rows: Sequence[MetricsRow]) -> list[tuple[float, float, float]]:
    """(from, to, share of waiting) between heartbeats; a process that began again starts a new count."""
    found = []
    for before, after in pairwise(rows):
        if before["session"] != after["session"]:
            continue
        worked, waited = ((number(after, name) or 0.0) - (number(before, name) or 0.0) for name in ("busy_s", "idle_s"))
        if worked >= 0 and waited >= 0 and worked + waited > 0:
            found.append((float(before["time_s"]), float(after["time_s"]), waited / (worked + waited)))
    return found


def _idle_shares(axes: Axes, group: Sequence[Family]) -> bool:
    means = {family: {role: _mean_idle(family, role) for role in ROLES} for family in group}
    width = 0.8 / len(group)
    for index, (family, ratios) in enumerate(means.items()):
        offset = (index - (len(group) - 1) / 2) * width
        heights = [100 * (ratios[role] or 0.0) for role in ROLES]
        axes.bar([place + offset for place in range(len(ROLES))], heights, width, color=family.colour)
    axes.set_xticks(range(len(ROLES)), ["trainer", "workers", "validators"])
    axes.set_ylabel("% of its time waiting")
    return any(ratio is not None for ratios in means.values() for ratio in ratios.values())


def _mean_idle(family: Family, role: str) -> float | None:
    found = [ratio for run in family.runs if (ratio := run.usage.idle_ratio(role)) is not None]
    return sum(found) / len(found) if found else None
