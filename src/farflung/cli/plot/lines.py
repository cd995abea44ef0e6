"""Figures over an axis: a line per run, or a mean and a band per family of runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from farflung.cli.plot.axis import label, positions, time_unit
from farflung.cli.plot.families import COLOURS, STYLES, Family, Look, all_runs
from farflung.cli.plot.runs import Run, number

GRID_POINTS = 200
"""Of the common axis that seeds are averaged on."""
SOFTNESS = 0.4
"""Where the smoothing is not given, means run over about 0.8 times the square root of the number of points."""
MAX_MARKERS = 40

Values = NDArray[np.float64]
Points = tuple[Values, Values]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Figures to draw, from training or from evaluation rows."""

    metric: str
    label: str = ""
    from_evals: bool = False
    is_exact: bool = False
    """Set, not measured: never smoothed."""


def draw_lines(
    axes: Axes, group: Sequence[Family], series: Sequence[Series], look: Look, *, is_log: bool = False
) -> bool:
    """Returns whether there was anything to draw.

    Several runs differ by colour and their series by line style; the series of a single run differ by colour.
    """
    drawn: list[Series] = []
    unit_s = time_unit(all_runs(group))[1]
    for number_of, (each, style) in enumerate(zip(series, STYLES, strict=False)):
        for family in group:
            curves = [c for run in family.runs if (c := _points(run, each, look, unit_s, is_log)) is not None]
            if not curves:
                continue
            drawn.append(each)
            is_alone = len(group) == 1
            colour = COLOURS[number_of] if is_alone else family.colour
            _draw(axes, curves, each, "-" if is_alone else style, colour, look, is_log)
        if len(series) > 1 and each in drawn:
            colour, style = (COLOURS[number_of], "-") if len(group) == 1 else ("0.35", style)
            axes.plot([], [], color=colour, linestyle=style, label=each.label)
    axes.set_xlabel(label(look.axis, all_runs(group)))
    return bool(drawn)


def smooth(values: Sequence[float] | Values, keep: float | None) -> Values:
    """Mean over all points with weight `keep ** distance`, so that a curve is not late.

    Args:
        keep: 0 = no smoothing, below 1; None = by the number of points.
    """
    array = np.asarray(values, dtype=np.float64)
    if keep is None:
        keep = 1 - 1 / max(1.0, SOFTNESS * len(array) ** 0.5)
    weights = _decayed(np.ones(len(array)), keep)
    sums = _decayed(array, keep)
    smoothed: Values = sums / weights
    return smoothed


def _decayed(values: Values, keep: float) -> Values:
    """Sum over j of keep ** |i - j| * values[j], for every i."""
    sums = -values
    for ordered, total in ((values, sums), (values[::-1], sums[::-1])):
        running = 0.0
        for index, value in enumerate(ordered):
            running = keep * running + float(value)
            total[index] += running
    return sums


def _points(run: Run, series: Series, look: Look, unit_s: float, is_log: bool) -> Points | None:
    place = positions(run, look.axis, unit_s)
    rows = run.evals if series.from_evals else run.train
    found = [(place(row), value) for row in rows if (value := number(row, series.metric)) is not None]
    found = [(x, y) for x, y in found if y > 0 or not is_log]
    if not found:
        return None
    xs, ys = zip(*found, strict=True)
    return np.array(xs), np.log10(ys) if is_log else np.array(ys)


def _draw(
    axes: Axes, curves: Sequence[Points], series: Series, style: str, colour: str, look: Look, is_log: bool
) -> None:
    """Of a figure on a logarithmic axis the curves are logarithms, and so are their means."""
    keep = 0.0 if series.from_evals or series.is_exact else look.smoothing
    soft = [(xs, smooth(ys, keep)) for xs, ys in curves]
    if len(soft) == 1:
        (xs, ys), raw_ys = soft[0], curves[0][1]
        if not np.array_equal(ys, raw_ys):
            axes.plot(xs, _back(raw_ys, is_log), color=colour, alpha=0.22, linewidth=0.7)
        marker = "o" if len(xs) == 1 or (series.from_evals and len(xs) <= MAX_MARKERS) else ""
        ys = _back(ys, is_log)
        axes.plot(xs, ys, color=colour, linestyle=style, linewidth=1.6, marker=marker, markersize=3)
        return
    grid, low, mean, high = _band(soft)
    axes.fill_between(grid, _back(low, is_log), _back(high, is_log), color=colour, alpha=0.18, linewidth=0)
    axes.plot(grid, _back(mean, is_log), color=colour, linestyle=style, linewidth=1.6)


def _back(values: Values, is_log: bool) -> Values:
    return np.power(10.0, values) if is_log else values


def _band(curves: Sequence[Points]) -> tuple[Values, ...]:
    """(x, lowest, mean, highest) where all curves are, on a common grid."""
    first, last = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    grid = np.linspace(first, max(first, last), GRID_POINTS)
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in curves])
    return grid, values.min(0), values.mean(0), values.max(0)
