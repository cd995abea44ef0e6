"""One figure over an axis: a line per run, or a mean and a band per family of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from farflung.cli.plot.axis import LABELS, Axis, positions
from farflung.cli.plot.runs import Run, number
from farflung.cli.view.plot import smoothed

# Okabe and Ito's palette, which people with any kind of colour vision tell apart; yellow is left out on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES = ("-", "--", ":", "-.")
GRID_POINTS = 200
"""Of the common axis that seeds are averaged on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What all panels of a page have in common."""

    axis: Axis = "versions"
    smoothing: float = 0.9
    """Weight of the past, 0 = none."""
    is_grouped: bool = False
    """Runs whose names differ in a number at the end become a mean and a band."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Figures to draw, from training or from evaluation rows."""

    metric: str
    label: str = ""
    from_evals: bool = False


Points = tuple[NDArray[np.float64], NDArray[np.float64]]


def draw_lines(axes: Axes, runs: Sequence[Run], series: Sequence[Series], look: Look) -> bool:
    """Returns whether there was anything to draw; several series differ by line style."""
    is_drawn = False
    for style, each in zip(STYLES, series, strict=False):
        for position, (name, members) in enumerate(families(runs, look).items()):
            curves = [points for run in members if (points := _points(run, each, look)) is not None]
            if curves:
                is_drawn = True
                _draw(
                    axes, curves, each, style, COLOURS[position % len(COLOURS)], _label(name, each, runs, series), look
                )
    axes.set_xlabel(LABELS[look.axis])
    axes.grid(alpha=0.25)
    return is_drawn


def families(runs: Sequence[Run], look: Look) -> Mapping[str, list[Run]]:
    """Name to show -> runs, in the order given."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        name = run.family if look.is_grouped else run.name
        groups.setdefault(name, []).append(run)
    return groups


def _points(run: Run, series: Series, look: Look) -> Points | None:
    place = positions(run, look.axis)
    rows = run.evals if series.from_evals else run.train
    found = [(place(row), value) for row in rows if (value := number(row, series.metric)) is not None]
    if not found:
        return None
    xs, ys = zip(*found, strict=True)
    return np.array(xs), np.array(ys)


def _draw(
    axes: Axes, curves: Sequence[Points], series: Series, style: str, colour: str, label: str, look: Look
) -> None:
    keep = 0.0 if series.from_evals else look.smoothing
    smooth = [(xs, np.array(smoothed(ys.tolist(), keep))) for xs, ys in curves]
    marker = "o" if series.from_evals else ""
    if len(smooth) == 1:
        (xs, ys), (raw_xs, raw_ys) = smooth[0], curves[0]
        if keep:
            axes.plot(raw_xs, raw_ys, color=colour, alpha=0.18, linewidth=0.7)
        axes.plot(xs, ys, color=colour, linestyle=style, linewidth=1.8, label=label, marker=marker, markersize=3)
        return
    grid, low, mean, high = _band(smooth)
    axes.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(grid, mean, color=colour, linestyle=style, linewidth=1.8, label=f"{label} (mean of {len(smooth)})")


def _band(curves: Sequence[Points]) -> tuple[NDArray[np.float64], ...]:
    """(x, lowest, mean, highest) where all curves are, on a common grid."""
    first, last = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    grid = np.linspace(first, max(first, last), GRID_POINTS)
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in curves])
    return grid, values.min(0), values.mean(0), values.max(0)


def _label(name: str, series: Series, runs: Sequence[Run], all_series: Sequence[Series]) -> str:
    """What tells this line from the others."""
    if len(all_series) == 1:
        return name
    return series.label if len(runs) == 1 else f"{name}, {series.label}"
