"""The pages: everything on one, or a file per panel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farflung.cli.plot import panels
from farflung.cli.plot.lines import Look, Series, draw_lines
from farflung.cli.plot.runs import Run, number

NUM_COLUMNS = 3
DPI = 110
LOG_DECADES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    name: str
    """Of its file."""
    title: str
    draw: Callable[[Axes, Sequence[Run], Look], bool]
    """Returns whether there was anything to draw."""


def _lines(*series: Series, y: str = "", is_log: bool = False, is_share: bool = False) -> Callable[..., bool]:
    def draw(axes: Axes, runs: Sequence[Run], look: Look) -> bool:
        is_drawn = draw_lines(axes, runs, series, look)
        axes.set_ylabel(y)
        if is_log and is_drawn:
            _log_scale(axes)
        if is_share:
            axes.set_ylim(-0.02, 1.02)
        return is_drawn

    return draw


def _log_scale(axes: Axes) -> None:
    """Of what is above 0, at most `LOG_DECADES` below the largest: a figure that starts at 0 hides the rest."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()])
    positive = values[values > 0]
    if len(positive):
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(positive.min(), positive.max() / 10**LOG_DECADES) / 1.3)


def _over_time(draw: Callable[..., bool]) -> Callable[..., bool]:
    return lambda axes, runs, look: draw(
        axes, runs, Look(axis="time", smoothing=look.smoothing, is_grouped=look.is_grouped)
    )


def _plain(draw: Callable[[Axes, Sequence[Run]], bool]) -> Callable[..., bool]:
    return lambda axes, runs, _look: draw(axes, runs)


_ACCURACY = Series(metric="accuracy", label="held-out accuracy", from_evals=True)
_REWARD = Series(metric="reward/mean", label="mean reward")

PANELS: tuple[Panel, ...] = (
    Panel(name="reward", title="Mean reward of the batch", draw=_lines(_REWARD)),
    Panel(name="accuracy", title="Held-out accuracy", draw=_lines(_ACCURACY, is_share=True)),
    Panel(name="accuracy-time", title="Held-out accuracy over time", draw=_over_time(_lines(_ACCURACY, is_share=True))),
    Panel(
        name="length",
        title="Completion length",
        draw=_lines(Series(metric="completions/mean_length"), y="tokens"),
    ),
    Panel(name="entropy", title="Entropy", draw=_lines(Series(metric="entropy"), y="nats per token")),
    Panel(
        name="no-signal",
        title="Groups without signal, truncated rollouts",
        draw=_lines(
            Series(metric="frac_reward_zero_std", label="without signal"),
            Series(metric="completions/clipped_ratio", label="truncated"),
            y="share",
        ),
    ),
    Panel(
        name="gradient",
        title="Gradient norm before clipping",
        draw=_lines(Series(metric="grad_norm"), is_log=True),
    ),
    Panel(
        name="mismatch",
        title="Sampler against trainer: mismatch KL",
        draw=_lines(Series(metric="mismatch_kl/mean"), y="nats per token", is_log=True),
    ),
    Panel(
        name="clip",
        title="Clipped and masked tokens",
        draw=_lines(
            Series(metric="clip_ratio/region_mean", label="clipped"),
            Series(metric="is_masked", label="masked"),
            y="share of tokens",
        ),
    ),
    Panel(name="staleness", title="Staleness of what was trained on", draw=_plain(panels.draw_staleness)),
    Panel(name="step-time", title="Where a version's time goes", draw=_plain(panels.draw_step_time)),
    Panel(name="waits", title="Who waits", draw=_plain(panels.draw_waits)),
)
FREQUENT = (
    *PANELS,
    Panel(name="dropped", title="Groups without a gradient", draw=_plain(panels.draw_without_gradient)),
    Panel(name="learning-rate", title="Learning rate", draw=_lines(Series(metric="learning_rate"), is_log=True)),
)
"""Panels by name; those of the page come first."""


def panel_of(metric: str) -> Panel:
    """Any figure of the rows as a panel of its own."""
    from_evals = metric.startswith("eval/")
    series = Series(metric=metric.removeprefix("eval/"), from_evals=from_evals)
    return Panel(name=metric.replace("/", "-"), title=metric, draw=_lines(series))


def write_overview(path: Path, runs: Sequence[Run], look: Look, chosen: Sequence[Panel], *, title: str) -> None:
    """One page of all panels that have something to show."""
    shown = [panel for panel in chosen if _has_figures(panel, runs, look)] or list(chosen[:1])
    num_rows = -(-len(shown) // NUM_COLUMNS)
    num_columns = min(NUM_COLUMNS, len(shown))
    figure = Figure(figsize=(5.4 * num_columns, 3.3 * num_rows + 0.5), dpi=DPI, layout="constrained")
    figure.suptitle(title, fontsize=14)
    grid = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
    for axes, panel in zip(grid, shown, strict=False):
        _draw(axes, panel, runs, look)
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    figure.savefig(path)


def write_each(folder: Path, runs: Sequence[Run], look: Look, chosen: Sequence[Panel], suffix: str) -> list[Path]:
    """A file per panel that has something to show."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for panel in chosen:
        figure = Figure(figsize=(7, 4.3), dpi=150, layout="constrained")
        if _draw(figure.subplots(), panel, runs, look):
            paths.append(folder / f"{panel.name}.{suffix}")
            figure.savefig(paths[-1])
    return paths


def metrics_of(runs: Sequence[Run]) -> list[str]:
    """Names of figures that any run has."""
    names = {name for run in runs for row in run.train for name in row if number(row, name) is not None}
    names |= {f"eval/{name}" for run in runs for row in run.evals for name in row if number(row, name) is not None}
    return sorted(names - {"time_s", "version", "eval/time_s", "eval/version"})


def _draw(axes: Axes, panel: Panel, runs: Sequence[Run], look: Look) -> bool:
    axes.set_title(panel.title, fontsize=11)
    is_drawn = panel.draw(axes, runs, look)
    if not is_drawn:
        axes.text(0.5, 0.5, "no figures", ha="center", va="center", transform=axes.transAxes, color="grey")
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1 or labels not in ([], [runs[0].name]):  # the page's title names a single run
        axes.legend(handles, labels, fontsize=8, framealpha=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return is_drawn


def _has_figures(panel: Panel, runs: Sequence[Run], look: Look) -> bool:
    return panel.draw(Figure().subplots(), runs, look)
