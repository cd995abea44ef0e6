"""The figures as one screen of 80 columns or more."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from farflung.cli.view import plot, words
from farflung.cli.view.plain import progress, reach
from farflung.cli.view.plot import Point
from farflung.cli.view.state import Figures, NodeFigures

AXIS_WIDTH = 5
SMOOTHING = 0.7
"""Weight of the past in the reward curve."""
NUM_OTHER_LINES = 14
"""Lines beside the curves, the processes and the notes."""
NOTHING = "-"
LOSS_NOTE = "A loss near 0 is normal here and no signal: watch the reward."
STOP_NOTE = "Ctrl-C stops cleanly; the same command continues the run."


def screen(figures: Figures, width: int, height: int) -> RenderableType:
    """The whole view, `width` columns wide and about `height` lines high."""
    num_free = height - NUM_OTHER_LINES - len(figures.nodes) - len(figures.notes)
    plot_height = min(9, max(3, num_free - 1 + num_free % 2))  # odd, so that the middle has a line of its own
    parts: list[RenderableType] = [
        _headline(figures),
        _plots(figures, width, plot_height),
        _facts(figures),
        Text(),
        _nodes(figures.nodes, width),
        Text(),
        *(Text(f" {note}", style="yellow", overflow="ellipsis", no_wrap=True) for note in figures.notes),
        _footer(figures),
    ]
    return Group(*parts)


def _plots(figures: Figures, width: int, height: int) -> Table:
    grid = Table.grid(expand=True, padding=0)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    curve_width = width // 2 - 4 - AXIS_WIDTH
    reward = _plot("reward", _smooth(figures.reward), "green", curve_width, height, figures.max_versions)
    accuracy = _plot("accuracy on held-out tasks", figures.accuracy, "cyan", curve_width, height, figures.max_versions)
    grid.add_row(reward, accuracy)
    return grid


def _headline(figures: Figures) -> Text:
    text = Text(f" {figures.name}", style="bold")
    text.append(f" · {figures.environment} · ", style="dim")
    text.append(progress(figures))
    text.append(f" · {words.duration(figures.elapsed_s)}", style="dim")
    if figures.is_finished:
        text.append(" · finished", style="bold green")
    elif figures.left_s is not None:
        text.append(f", about {words.duration(figures.left_s)} left", style="dim")
    if trouble := reach(figures):
        text.append(f" · {trouble}", style="yellow")
    return text


def _smooth(points: Sequence[Point]) -> list[Point]:
    """Batches are small, so their mean rewards jump."""
    ys = plot.smoothed([y for _, y in points], SMOOTHING)
    return [(x, y) for (x, _), y in zip(points, ys, strict=True)]


def _plot(title: str, points: Sequence[Point], colour: str, width: int, height: int, max_versions: int) -> Panel:
    values = [y for _, y in points]
    low, high = plot.nice_range(values)
    lines = plot.curve(points, width=width, height=height, x_range=(0, max(1, max_versions)), y_range=(low, high))
    labels = {0: high, height // 2: (low + high) / 2, height - 1: low}
    text = Text()
    for number, line in enumerate(lines):
        axis = f"{labels[number]:{AXIS_WIDTH - 1}.3g}┤" if number in labels else f"{'│':>{AXIS_WIDTH}}"
        text.append(axis, style="dim")
        text.append(line + ("\n" if number < height - 1 else ""), style=colour)
    subtitle = f"{values[0]:.2f} at first, [bold]{values[-1]:.2f}[/bold] now" if values else "nothing yet"
    return Panel(text, title=title, title_align="left", subtitle=subtitle, subtitle_align="right", border_style="dim")


def _facts(figures: Figures) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True)
    table.add_row(" staleness", _staleness(figures))
    table.add_row(" tokens", _tokens(figures))
    table.add_row(" health", Text(_health(figures)))
    table.add_row(" dropped", Text(_drops(figures.drops)))
    return table


def _staleness(figures: Figures) -> str:
    if figures.staleness_mean is None:
        return NOTHING
    return (
        f"mean {figures.staleness_mean:.1f}, max {figures.staleness_max} of {figures.max_staleness} allowed"
        f"   0 {plot.sparkline(figures.staleness_counts)} {figures.max_staleness}"
    )


def _tokens(figures: Figures) -> str:
    rate = f"{words.count(figures.tokens_per_s)}/s sampled" if figures.tokens_per_s is not None else NOTHING
    totals = (
        f"{words.count(figures.tokens_generated)} sampled, {words.count(figures.tokens_accepted)} accepted, "
        f"{words.count(figures.tokens_trained)} trained on"
    )
    return f"{rate}   {totals}" if figures.tokens_generated else rate


def _health(figures: Figures) -> str:
    """The early warnings beside the reward, as means over the last versions."""
    shown = [
        f"{label} {form(value)}"
        for label, value, form in (
            ("entropy", figures.health.get("entropy"), "{:.2f}".format),
            ("gradient", figures.health.get("grad_norm"), "{:.2g}".format),
            ("mismatch", figures.health.get("mismatch_kl/mean"), "{:.1g}".format),
            ("length", figures.health.get("completions/mean_length"), "{:.0f}".format),
            ("truncated", figures.health.get("completions/clipped_ratio"), words.percent),
            ("clipped", figures.health.get("clip_ratio/region_mean"), words.percent),
        )
        if value is not None
    ]
    return ", ".join(shown) or NOTHING


def _drops(drops: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {words.count(number)}" for reason, number in drops.items()) or "none"


def _nodes(nodes: Sequence[NodeFigures], width: int) -> Table:
    bar_width = 8 if width < 100 else 20
    table = Table(box=None, padding=(0, 1), expand=True, header_style="dim", pad_edge=True)
    table.add_column("role", no_wrap=True)
    table.add_column("does", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("busy", no_wrap=True, width=bar_width + 7)
    table.add_column("tokens/s", justify="right", no_wrap=True)
    table.add_column("version", justify="right", no_wrap=True)
    for node in nodes:
        table.add_row(
            Text(node.name),  # a plain str would be read as markup
            Text(node.activity if node.is_alive else "not heard of", style=_activity_style(node)),
            _busy(node, bar_width),
            words.count(node.tokens_per_s) if node.tokens_per_s else "",
            str(node.policy_version) if node.policy_version >= 0 else "",
            style="" if node.is_alive else "red",
        )
    return table


def _activity_style(node: NodeFigures) -> str:
    if not node.is_alive:
        return "red"
    return "yellow" if node.activity.startswith("waiting") else "green"


def _busy(node: NodeFigures, bar_width: int) -> Text:
    if node.idle_share is None or not node.is_alive:
        return Text()
    busy_share = 1 - node.idle_share
    text = Text(plot.bar(busy_share, bar_width), style="green")
    text.append(f" {words.percent(busy_share):>6}", style="default")
    return text


def _footer(figures: Figures) -> Text:
    loss = f"Loss {figures.loss:+.4f}. " if figures.loss is not None else ""
    return Text(f" {loss}{LOSS_NOTE}\n {STOP_NOTE}", style="dim italic")
