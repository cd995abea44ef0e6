"""Pages: everything on one, or a file per panel. Draws on figures of its own, so nothing global is touched."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from farflung.cli.plot.families import Family, Look, families
from farflung.cli.plot.panels import PANELS, Panel
from farflung.cli.plot.runs import Run

NUM_COLUMNS = 4
DPI = 110
STYLE: dict[str, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.4",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.7,
    "xtick.color": "0.25",
    "ytick.color": "0.25",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
"""Type 42: text in a PDF stays text, as journals ask for."""


def write_page(
    path: Path, runs: Sequence[Run], look: Look, panels: Sequence[Panel] = PANELS, *, title: str = ""
) -> None:
    """One page of all panels that have something to show.

    Raises:
        OSError: the file cannot be written.
    """
    group = families(runs, look.is_grouped)
    with mpl.rc_context(STYLE):
        shown = [panel for panel in panels if _has_figures(panel, group, look)] or list(panels[:1])
        places, num_rows, num_columns = _places(shown)
        figure = Figure(figsize=(4.2 * num_columns, 2.75 * num_rows + 0.6), dpi=DPI, layout="constrained")
        grid = figure.add_gridspec(num_rows, num_columns)
        for panel, (row, columns) in zip(shown, places, strict=True):
            _draw(figure.add_subplot(grid[row, columns]), panel, group, look)
        if title:
            figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
        if len(group) > 1 or len(group[0].runs) > 1:
            figure.legend(handles=_handles(group), loc="outside upper right", ncols=min(len(group), 4), fontsize=9)
        _save(figure, path)


def write_each(folder: Path, runs: Sequence[Run], look: Look, panels: Sequence[Panel], suffix: str) -> list[Path]:
    """A file per panel that has something to show.

    Raises:
        OSError: the folder or a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    group = families(runs, look.is_grouped)
    paths = []
    with mpl.rc_context(STYLE):
        for panel in (panel for panel in panels if _has_figures(panel, group, look)):
            figure = Figure(figsize=(6.4 if panel.num_columns == 1 else 12.0, 3.9), dpi=160, layout="constrained")
            _draw(figure.subplots(), panel, group, look)
            if len(group) > 1:
                figure.legend(handles=_handles(group), loc="outside lower center", ncols=3)
            paths.append(folder / f"{panel.name}.{suffix}")
            _save(figure, paths[-1])
    return paths


def _places(panels: Sequence[Panel]) -> tuple[list[tuple[int, slice]], int, int]:
    """(row, columns) of each panel, number of rows, number of columns; wide panels begin a row where they must."""
    num_columns = min(NUM_COLUMNS, max(sum(panel.num_columns for panel in panels), 1))
    places: list[tuple[int, slice]] = []
    row, column = 0, 0
    for panel in panels:
        width = min(panel.num_columns, num_columns)
        if column + width > num_columns:
            row, column = row + 1, 0
        places.append((row, slice(column, column + width)))
        column += width
    return places, row + 1, num_columns


def _handles(group: Sequence[Family]) -> list[Line2D]:
    return [Line2D([], [], color=family.colour, linewidth=2.5, label=family.label) for family in group]


def _draw(axes: Axes, panel: Panel, group: Sequence[Family], look: Look) -> None:
    axes.set_title(panel.title, y=1.0)  # given, so that what stands above the picture does not lift it
    if not panel.draw(axes, group, look):
        axes.text(0.5, 0.5, "no figures", ha="center", va="center", transform=axes.transAxes, color="grey")
    if not axes.images:
        axes.grid(visible=True)
    handles, labels = axes.get_legend_handles_labels()
    if handles and axes.get_legend() is None:
        axes.legend(handles, labels)


def _has_figures(panel: Panel, group: Sequence[Family], look: Look) -> bool:
    if panel.of_one_run and (len(group) > 1 or len(group[0].runs) > 1):
        return False
    return panel.draw(Figure().subplots(), group, look)


def _save(figure: Figure, path: Path) -> None:
    """Without a date, so that the same run gives the same file."""
    dated = {".pdf": "CreationDate", ".svg": "Date"}.get(path.suffix)
    figure.savefig(path, metadata={dated: None} if dated else {"Software": "farflung"})
