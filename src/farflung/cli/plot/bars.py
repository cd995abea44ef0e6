"""Staleness, the time of a step, and groups without a gradient: areas over a run, bars for several."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from farflung.cli.plot.axis import label, positions, time_unit
from farflung.cli.plot.families import COLOURS, Family, Look
from farflung.cli.plot.lines import Series, draw_lines, smooth
from farflung.cli.plot.runs import Run, number
from farflung.cli.report.summary import histogram_of, staleness_histogram
from farflung.cli.view.state import merged_drops
from farflung.telemetry.metrics import MetricsRow

STEP_PARTS = ("train", "wait_for_batch", "evaluate", "publish")
MAX_CELLS = 80
MAX_REASONS_SHOWN = 6
REST = "other reasons"


def draw_staleness(axes: Axes, group: Sequence[Family], _look: Look) -> bool:
    """Share of the rollouts that were trained on, by versions between sampling and training."""
    drawn = [(family, counts) for family in group if (counts := _staleness(family))]
    width = 0.8 / max(len(drawn), 1)
    for index, (family, counts) in enumerate(drawn):
        offset = (index - (len(drawn) - 1) / 2) * width
        shares = [100 * count / counts.total() for count in counts.values()]
        axes.bar([each + offset for each in counts], shares, width, color=family.colour)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("versions between sampling and training")
    axes.set_ylabel("% of rollouts")
    return bool(drawn)


def draw_staleness_over(axes: Axes, group: Sequence[Family], look: Look) -> bool:
    """One run: which share of a batch had which staleness; several: the mean."""
    if len(group) > 1 or len(group[0].runs) > 1:
        axes.set_ylabel("versions, mean")
        return draw_lines(axes, group, [Series(metric="staleness/mean")], look)
    run = group[0].runs[0]
    rows = [row for row in run.train if histogram_of(row)]
    if not rows:
        return False
    top = max(staleness for row in rows for staleness in histogram_of(row))
    cells = min(MAX_CELLS, len(rows))
    shares = np.zeros((top + 1, cells))
    for index, row in enumerate(rows):
        for staleness, count in histogram_of(row).items():
            shares[staleness, index * cells // len(rows)] += count
    shares = 100 * shares / np.maximum(shares.sum(0), 1)
    place = positions(run, look.axis, time_unit([run])[1])
    image = axes.imshow(
        shares,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        cmap="Blues",
        vmin=0,
        vmax=100,
        extent=(place(rows[0]), max(place(rows[-1]), place(rows[0]) + 1e-9), -0.5, top + 0.5),
    )
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(label(look.axis, [run]))
    axes.set_ylabel("versions")
    share_bar(axes, image)
    return True


def share_bar(axes: Axes, image: AxesImage) -> None:
    """What the colours of shares in % mean, small and above the picture, where it takes no room from others."""
    place = axes.inset_axes((0.72, 1.06, 0.28, 0.04))
    bar = axes.figure.colorbar(image, cax=place, orientation="horizontal", ticks=[0, 50, 100])
    bar.ax.set_xticklabels(["0", "50", "100 %"], fontsize=6.5)
    bar.ax.tick_params(length=2, pad=1, top=True, labeltop=True, bottom=False, labelbottom=False)
    bar.outline.set_linewidth(0.5)


def draw_step_time(axes: Axes, group: Sequence[Family], look: Look) -> bool:
    """Seconds of a version by what the trainer did: over a run, or a bar for each of several."""
    labels = [part.replace("_", " ") for part in STEP_PARTS]
    if len(group) == 1 and len(group[0].runs) == 1:
        rows = [row for row in group[0].runs[0].train if _has_parts(row)]
        values = [[number(row, f"time/{part}_s") or 0.0 for row in rows] for part in STEP_PARTS]
        axes.set_ylabel("seconds per version")
        return _area(axes, group[0].runs[0], rows, [smooth(each, look.smoothing) for each in values], labels, look)
    means = {
        family.name: {
            name: _mean([row for run in family.runs for row in run.train], f"time/{part}_s")
            for part, name in zip(STEP_PARTS, labels, strict=True)
        }
        for family in group
    }
    axes.set_xlabel("seconds per version")
    return _bars(axes, means, labels)


def draw_without_gradient(axes: Axes, group: Sequence[Family], look: Look) -> bool:
    """Groups that carried no gradient, by reason: as they add up over a run, or a bar for each of several."""
    if len(group) == 1 and len(group[0].runs) == 1:
        run = group[0].runs[0]
        drops = _drops(run)
        reasons = _reasons(drops[-1:])
        counts = [[_count(row, reason, reasons) for row in drops] for reason in reasons]
        axes.set_ylabel("groups so far")
        return _area(axes, run, run.train, counts, [each.replace("_", " ") for each in reasons], look)
    last = {family.name: _sum([drops[-1] for run in family.runs if (drops := _drops(run))]) for family in group}
    reasons = _reasons(list(last.values()))
    named = {
        name: {each.replace("_", " "): _count(drops, each, reasons) for each in reasons} for name, drops in last.items()
    }
    axes.set_xlabel("groups")
    return _bars(axes, named, [each.replace("_", " ") for each in reasons])


def _drops(run: Run) -> list[Mapping[str, int]]:
    """Reason -> groups up to each version: what the trainer left out, and what the pool counted by then."""
    times_s = [row["time_s"] for row in run.pools]
    drops: list[Mapping[str, int]] = []
    for row in run.train:
        index = bisect_right(times_s, row["time_s"])
        pool = run.pools[index - 1].get("drops") if index else None
        own = row.get("drops")
        drops.append(merged_drops(pool if isinstance(pool, dict) else {}, [row] if isinstance(own, dict) else []))
    return drops


def _reasons(drops: Sequence[Mapping[str, int]]) -> list[str]:
    """The most frequent ones, and a name for all others together."""
    totals = Counter(_sum(drops))
    shown = [reason for reason, _ in totals.most_common(MAX_REASONS_SHOWN)]
    return [*shown, REST] if len(totals) > MAX_REASONS_SHOWN else shown


def _count(drops: Mapping[str, int], reason: str, reasons: Sequence[str]) -> float:
    if reason == REST:
        return float(sum(count for each, count in drops.items() if each not in reasons))
    return float(drops.get(reason, 0))


def _sum(drops: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in drops:
        total.update(each)
    return dict(total)


def _staleness(family: Family) -> Counter[int]:
    total: Counter[int] = Counter()
    for run in family.runs:
        total.update(staleness_histogram(run.train))
    return Counter(dict(sorted(total.items())))


def _area(
    axes: Axes,
    run: Run,
    rows: Sequence[MetricsRow],
    values: Sequence[Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]],
    labels: Sequence[str],
    look: Look,
) -> bool:
    place = positions(run, look.axis, time_unit([run])[1])
    shown = [(each, name) for each, name in zip(values, labels, strict=True) if np.any(np.asarray(each) > 0)]
    if not shown:
        return False
    parts, names = zip(*shown, strict=True)
    axes.stackplot([place(row) for row in rows], *parts, labels=names, colors=COLOURS, alpha=0.85, linewidth=0)
    axes.set_xlabel(label(look.axis, [run]))
    return True


def _bars(axes: Axes, values: Mapping[str, Mapping[str, float]], parts: Sequence[str]) -> bool:
    names = list(values)[::-1]
    left = np.zeros(len(names))
    for index, part in enumerate(parts):
        widths = np.array([values[name].get(part, 0.0) for name in names])
        axes.barh(names, widths, left=left, color=COLOURS[index % len(COLOURS)], label=part, height=0.6)
        left += widths
    return bool(left.any())


def _has_parts(row: MetricsRow) -> bool:
    return any(number(row, f"time/{part}_s") is not None for part in STEP_PARTS)


def _mean(rows: Sequence[MetricsRow], name: str) -> float:
    values = [value for row in rows if (value := number(row, name)) is not None]
    return sum(values) / len(values) if values else 0.0
