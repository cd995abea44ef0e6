"""The pictures by name: what each shows, and how large it is on a page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes

from farflung.cli.plot import bars, waits
from farflung.cli.plot.families import Family, Look
from farflung.cli.plot.lines import Series, draw_lines
from farflung.cli.plot.runs import Run, number

LOG_DECADES = 4
MIN_LOG_RATIO = 10
"""Largest to smallest; below, a plain axis is easier to read."""

Draw = Callable[[Axes, Sequence[Family], Look], bool]
"""Returns whether there was anything to draw."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    name: str
    """Of its file."""
    title: str
    draw: Draw
    num_columns: int = 1
    """Of the page's grid."""
    of_one_run: bool = False
    """Whether it can show one run only, and is left out where there are several."""


def _lines(*series: Series, y: str = "", is_log: bool = False, is_share: bool = False) -> Draw:
    def draw(axes: Axes, group: Sequence[Family], look: Look) -> bool:
        is_drawn = draw_lines(axes, group, series, look, is_log=is_log)
        axes.set_ylabel(y)
        if is_log and is_drawn:
            _log_scale(axes)
        if is_share and is_drawn and axes.get_ylim()[1] <= 1.1:
            axes.set_ylim(min(0.0, axes.get_ylim()[0]) - 0.02, 1.02)
        return is_drawn

    return draw


def _log_scale(axes: Axes) -> None:
    """At most `LOG_DECADES` below the largest: a figure that starts near 0 hides the rest."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()])
    positive = values[values > 0]
    if len(positive) and positive.max() > MIN_LOG_RATIO * positive.min():
        axes.set_yscale("log")
        axes.set_ylim(max(positive.min(), positive.max() / 10**LOG_DECADES) / 1.3, positive.max() * 1.3)


def _over_time(draw: Draw) -> Draw:
    """Beside the same picture over versions; where that one is over time, there is no need for it."""
    return lambda axes, group, look: look.axis != "time" and draw(axes, group, replace(look, axis="time"))


_ACCURACY = _lines(Series(metric="accuracy", from_evals=True), is_share=True)
_REWARD = _lines(Series(metric="reward/mean"))

PANELS: tuple[Panel, ...] = (
    Panel(name="reward", title="Mean reward of the batch", draw=_REWARD),
    Panel(name="accuracy", title="Held-out accuracy", draw=_ACCURACY),
    Panel(name="reward-time", title="Mean reward over time", draw=_over_time(_REWARD)),
    Panel(name="accuracy-time", title="Held-out accuracy over time", draw=_over_time(_ACCURACY)),
    Panel(
        name="length",
        title="Completion length",
        draw=_lines(
            Series(metric="completions/mean_length", label="all"),
            Series(metric="completions/mean_terminated_length", label="ended by themselves"),
            y="tokens, mean",
        ),
    ),
    Panel(
        name="shares",
        title="Without signal, truncated",
        draw=_lines(
            Series(metric="frac_reward_zero_std", label="groups without signal"),
            Series(metric="completions/clipped_ratio", label="rollouts truncated"),
            y="share",
            is_share=True,
        ),
    ),
    Panel(name="entropy", title="Entropy", draw=_lines(Series(metric="entropy"), y="nats per token")),
    Panel(name="gradient", title="Gradient norm before clipping", draw=_lines(Series(metric="grad_norm"), is_log=True)),
    Panel(
        name="mismatch",
        title="Trainer against sampler",
        draw=_lines(Series(metric="mismatch_kl/mean"), y="mismatch KL, nats per token", is_log=True),
    ),
    Panel(
        name="clip",
        title="Clipped and masked",
        draw=_lines(
            Series(metric="clip_ratio/region_mean", label="clipped"),
            Series(metric="is_masked", label="masked"),
            Series(metric="guard/is_masked", label="masked by the guard"),
            y="share of tokens",
        ),
    ),
    Panel(name="kl", title="KL to the reference", draw=_lines(Series(metric="kl"), y="nats per token")),
    Panel(name="staleness-over", title="Staleness over the run", draw=bars.draw_staleness_over),
    Panel(name="staleness", title="Staleness in all", draw=bars.draw_staleness),
    Panel(name="dropped", title="Groups without a gradient", draw=bars.draw_without_gradient),
    Panel(name="step-time", title="Where a version's time goes", draw=bars.draw_step_time),
    Panel(name="learning-rate", title="Learning rate", draw=_lines(Series(metric="learning_rate", is_exact=True))),
    Panel(name="waits", title="Share of time waiting", draw=waits.draw_waits),
    Panel(name="timeline", title="What each process does", draw=waits.draw_timeline, num_columns=4, of_one_run=True),
)
"""Those of the page, in its order."""


def panel_of(metric: str) -> Panel:
    """Any figure of the rows as a panel of its own."""
    from_evals = metric.startswith("eval/")
    series = Series(metric=metric.removeprefix("eval/"), from_evals=from_evals)
    return Panel(name=metric.replace("/", "-"), title=metric, draw=_lines(series))


def metrics_of(runs: Sequence[Run]) -> list[str]:
    """Names of figures that any run has."""
    names = {name for run in runs for row in run.train for name in row if number(row, name) is not None}
    names |= {f"eval/{name}" for run in runs for row in run.evals for name in row if number(row, name) is not None}
    return sorted(names - {"time_s", "version", "eval/time_s", "eval/version"})
