"""The command: folders in, pictures out."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from farflung.cli.plot.families import Look, families
from farflung.cli.plot.page import write_each, write_page
from farflung.cli.plot.panels import PANELS, Panel, metrics_of, panel_of
from farflung.cli.plot.runs import Run, read_run
from farflung.errors import UserError

SUFFIXES = ("png", "svg", "pdf")
MAX_RUNS = 64
MAX_TITLE_CHARS = 100


def run_plot(arguments: Namespace) -> int:
    """Draw; prints where the pictures are.

    Raises:
        UserError: nothing to draw, unknown figures, or a place that cannot be written to.
    """
    if len(arguments.runs) > MAX_RUNS:
        raise UserError(f"{len(arguments.runs)} runs: at most {MAX_RUNS} can be told apart on one page")
    if arguments.smooth is not None and not 0 <= arguments.smooth < 1:
        raise UserError(f"--smooth is {arguments.smooth}: it must be at least 0 and below 1")
    runs = _told_apart(_read([Path(path) for path in arguments.runs]))
    look = Look(axis=arguments.x, smoothing=arguments.smooth, is_grouped=arguments.group)
    chosen = _chosen(arguments.metrics, runs)
    try:
        if arguments.each:
            paths = write_each(Path(arguments.each), runs, look, chosen, arguments.format)
        else:
            paths = [_out(arguments, runs)]
            write_page(paths[0], runs, look, chosen, title=_title(runs, look))
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror or error}") from error
    sys.stdout.writelines(f"{path}\n" for path in paths)
    return 0


def _read(paths: Sequence[Path]) -> list[Run]:
    """Those that have something to draw; of several, the others are told and left out."""
    runs, problems = [], []
    for path in paths:
        try:
            runs.append(read_run(path))
        except UserError as error:
            problems.append(error)
    if not runs:
        raise problems[0]
    sys.stderr.writelines(f"farflung: left out: {problem}\n" for problem in problems)
    return runs


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """Runs of one name in different places get a number, so that no line hides another."""
    seen: dict[str, int] = {}
    named = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        named.append(run if seen[run.name] == 1 else replace(run, name=f"{run.name} ({seen[run.name]})"))
    return named


def _title(runs: Sequence[Run], look: Look) -> str:
    """The name of a single run; several stand in the legend."""
    group = families(runs, look.is_grouped)
    return group[0].name if len(group) == 1 else f"{len(group)} runs"


def _chosen(wanted: str | None, runs: Sequence[Run]) -> Sequence[Panel]:
    if wanted is None:
        return PANELS
    known = {panel.name: panel for panel in PANELS}
    metrics = metrics_of(runs)
    chosen = []
    for name in wanted.split(","):
        if name not in known and name not in metrics:
            raise UserError(f"--metrics has {name!r}: known are {', '.join([*known, *metrics])}")
        chosen.append(known.get(name) or panel_of(name))
    return chosen


def _out(arguments: Namespace, runs: Sequence[Run]) -> Path:
    """As told, a file or a folder; else beside the run, or for several in the current folder."""
    name = f"plot.{arguments.format}"
    if arguments.out:
        path = Path(arguments.out)
        if path.is_dir():
            return path / name
        if path.suffix.lstrip(".") not in SUFFIXES:
            raise UserError(f"--out is {path}: it must be a folder, or end in .{', .'.join(SUFFIXES)}")
        if not path.parent.is_dir():
            raise UserError(f"--out is {path}: there is no folder {path.parent}")
        return path
    root = Path(arguments.runs[0])
    folder = (root.parent if root.is_file() else root) if len(runs) == 1 and len(arguments.runs) == 1 else Path()
    return folder / name
