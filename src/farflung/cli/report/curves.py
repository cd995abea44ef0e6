"""The picture of a run: did it learn, how fast, how stale was the work, and who waited.

Draws on figures of its own, never through pyplot, so no display is needed and nothing global is touched.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farflung.cli.report.summary import staleness_histogram
from farflung.cli.report.usage import Usage
from farflung.cli.view.plot import smoothed

REWARD, ACCURACY, SECOND, BUSY, IDLE = "#2a9d5c", "#1f6fb4", "#c2571a", "#2a9d5c", "#d9d9d9"
SMOOTHING = 0.9
"""Weight of the past in the smoothed reward curve."""

Row = Mapping[str, Any]


def write_curves(path: Path, metrics: Iterable[Row], usage: Usage, *, title: str) -> None:
    """Write a PNG of six panels; panels without data say so."""
    rows = list(metrics)
    train = [row for row in rows if row["kind"] == "train"]
    evals = [row for row in rows if row["kind"] == "eval" and row.get("accuracy") is not None]
    figure = Figure(figsize=(15, 8.5), dpi=110, layout="constrained")
    figure.suptitle(title, fontsize=14)
    by_version, by_time, staleness, waits, length, mismatch = figure.subplots(2, 3).flat
    start_s = min((float(row["time_s"]) for row in rows), default=0.0)
    _learning(by_version, train, evals, lambda row: float(row["version"]), "policy version")
    _learning(by_time, train, evals, lambda row: (float(row["time_s"]) - start_s) / 60, "minutes since the start")
    _staleness(staleness, staleness_histogram(train))
    _waits(waits, usage)
    length.set_title("Completion length and entropy")
    _two(length, train, ("completions/mean_length", "mean length, tokens"), ("entropy", "entropy, nats"))
    mismatch.set_title("Sampler against trainer, and gradient norm")
    _two(mismatch, train, ("mismatch_kl/mean", "mismatch KL, nats"), ("grad_norm", "gradient norm before clipping"))
    figure.savefig(path, metadata={"Software": "farflung"})


def _learning(axes: Axes, train: Sequence[Row], evals: Sequence[Row], x: Any, x_label: str) -> None:
    axes.set_title(f"Reward and held-out accuracy against {x_label.split(' since')[0]}")
    points = [(x(row), float(row["reward/mean"])) for row in train if row.get("reward/mean") is not None]
    if not points and not evals:
        _nothing(axes)
        return
    if points:
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, color=REWARD, alpha=0.25, linewidth=0.8)
        axes.plot(xs, smoothed(ys, SMOOTHING), color=REWARD, linewidth=2, label="mean reward of the batch (smoothed)")
    if evals:
        axes.plot(
            [x(row) for row in evals],
            [float(row["accuracy"]) for row in evals],
            color=ACCURACY,
            marker="o",
            markersize=4,
            label="accuracy on held-out tasks",
        )
        axes.annotate(
            f"{float(evals[-1]['accuracy']):.3f}",
            (x(evals[-1]), float(evals[-1]["accuracy"])),
            textcoords="offset points",
            xytext=(0, -16),  # below the curve: above it is the frame
            ha="right",
            color=ACCURACY,
            fontweight="bold",
        )
    if all(0 <= y <= 1 for _, y in points):
        axes.set_ylim(0, 1.02)
    axes.set_xlabel(x_label)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")


def _staleness(axes: Axes, counts: Mapping[int, int]) -> None:
    axes.set_title("Staleness of the rollouts that were trained on")
    if not counts:
        _nothing(axes)
        return
    bars = axes.bar(list(counts), list(counts.values()), color=ACCURACY)
    axes.bar_label(bars, fontsize=8)
    axes.set_xticks(range(max(counts) + 1))
    axes.set_xlabel("versions between sampling and training")
    axes.set_ylabel("rollouts")


def _waits(axes: Axes, usage: Usage) -> None:
    axes.set_title("Who worked and who waited for others")
    nodes = [node for node in usage.nodes if node.busy_s + node.idle_s > 0][::-1]
    if not nodes:
        _nothing(axes)
        return
    names = [node.name for node in nodes]
    axes.barh(names, [100 * (1 - node.idle_ratio) for node in nodes], color=BUSY, label="worked")
    axes.barh(
        names,
        [100 * node.idle_ratio for node in nodes],
        left=[100 * (1 - node.idle_ratio) for node in nodes],
        color=IDLE,
        label="waited",
    )
    for index, node in enumerate(nodes):
        axes.text(101, index, f"{100 * node.idle_ratio:.0f} % waited", va="center", fontsize=8)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of its time, %")
    axes.legend(loc="lower right", fontsize=8)


def _two(axes: Axes, train: Sequence[Row], left: tuple[str, str], right: tuple[str, str]) -> None:
    """Two figures of different units over versions, each as (name, label)."""
    if not any(row.get(name) is not None for row in train for name, _ in (left, right)):
        _nothing(axes)
        return
    axes.set_xlabel("policy version")
    axes.grid(alpha=0.3)
    for side, (name, label), colour in ((axes, left, REWARD), (axes.twinx(), right, SECOND)):
        points = [(float(row["version"]), float(row[name])) for row in train if row.get(name) is not None]
        if points:
            xs, ys = zip(*points, strict=True)
            side.plot(xs, ys, color=colour, alpha=0.25, linewidth=0.8)
            side.plot(xs, smoothed(ys, SMOOTHING), color=colour, linewidth=1.8)
        side.set_ylabel(label, color=colour)
        side.tick_params(axis="y", labelcolor=colour)


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no figures", ha="center", va="center", transform=axes.transAxes, color="grey")
    axes.set_xticks([])
    axes.set_yticks([])
