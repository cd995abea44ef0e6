"""`docs/images/async.png`: accuracy against staleness, and the speed-up of not waiting.

    python -m benchmarks.async_plot

Reads `staleness.jsonl` and the newest figures of `results.jsonl`; measures nothing.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.record import results
from benchmarks.staleness import LAGS, MARGIN, TASKS, Arm, Comparison, by_seed, compare, load

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "async.png"
SPEED_UPS = "async/speed-up/simulated/delay-1-step"

COLORS = {"behaviour": "#2a9d5c", "decoupled": "#1f6fb4", "naive": "#c2571a"}
NAMES = {
    "behaviour": "two policies (ratio to the sampler)",
    "decoupled": "decoupled (the default)",
    "naive": "naive (no correction)",
}


def draw(path: Path = PICTURE) -> None:
    """Write the picture from what has been measured so far."""
    done = load()
    figure = Figure(figsize=(13, 9), dpi=110, layout="constrained")
    sort, addition, half, speed = figure.subplots(2, 2).flat
    sort_lr, addition_lr = TASKS["sort-digits"].lr, TASKS["long-addition"].lr
    _accuracy(sort, done, "sort-digits", sort_lr, f"Sort digits, learning rate {sort_lr:g} as shipped")
    _accuracy(addition, done, "long-addition", addition_lr, f"Long addition, learning rate {addition_lr:g} as shipped")
    _accuracy(half, done, "sort-digits", sort_lr / 2, f"Sort digits, half the rate: {sort_lr / 2:g}")
    entry = {entry["name"]: entry for entry in results()}.get(SPEED_UPS)
    _speed_up(speed, [] if entry is None else entry["detail"]["rows"])
    figure.savefig(path, metadata={"Software": "farflung"})


def _accuracy(axes: Axes, done: Mapping[str, Mapping[str, Any]], task: str, lr: float, title: str) -> None:
    """Bands are of the paired difference to staleness 0, which is what the margin is compared with."""
    axes.set_title(title)
    axes.set_xlabel("staleness, versions")
    axes.set_ylabel("held-out accuracy at equal samples")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    reference = by_seed(done, Arm(task=task, objective="decoupled", lr=lr, seed=0))
    if not reference:
        return
    level = statistics.fmean(reference.values())
    axes.axhspan(level - MARGIN, level + MARGIN, color="#dddddd", label=f"margin of equivalence, ±{MARGIN:g}")
    lags = (0, *LAGS)
    for objective, color in COLORS.items():
        arms = [Arm(task=task, objective=objective, staleness=lag, lr=lr, seed=0) for lag in LAGS]
        found = [(arm.staleness, by_seed(done, arm)) for arm in arms]
        points = [(lags.index(lag), compare(values, reference)) for lag, values in found if len(values) > 1]
        if not points:
            continue
        xs = [0, *(x for x, _ in points)]
        axes.plot(
            xs,
            [level, *(level + point.mean for _, point in points)],
            color=color,
            marker="o",
            markersize=4,
            label=NAMES[objective],
        )
        low, high = ([level, *(level + bound for bound in bounds)] for bounds in _bounds(points))
        axes.fill_between(xs, low, high, color=color, alpha=0.2, linewidth=0)
    axes.set_xticks(range(len(lags)), [str(lag) for lag in lags])
    axes.legend(loc="lower left", fontsize=8.5)


def _bounds(points: Sequence[tuple[int, Comparison]]) -> tuple[list[float], list[float]]:
    return [point.low for _, point in points], [point.high for _, point in points]


def _speed_up(axes: Axes, rows: list[dict[str, Any]]) -> None:
    axes.set_title("Wall-clock, asynchronous over synchronous: 8 late workers")
    positions = range(len(rows))
    axes.plot(positions, [row["predicted"] for row in rows], color="#444444", linewidth=1.5, label="the formula")
    axes.plot(
        positions,
        [row["speed_up"] for row in rows],
        color=COLORS["decoupled"],
        marker="o",
        linestyle="none",
        label="simulated time: real ledger, leases, buffer",
    )
    axes.axhline(1, color="#999999", linewidth=0.8, linestyle=":")
    axes.set_xticks(positions, [f"{row['scale']:g}" for row in rows])
    axes.set_xlabel("mean delay of a slot, in training steps")
    axes.set_ylabel("speed-up")
    axes.set_ylim(0, None)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize=8.5)


if __name__ == "__main__":
    draw()
