"""The command: folders in, pictures out."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from farflung.cli.plot.lines import Look, families
from farflung.cli.plot.overview import FREQUENT, PANELS, Panel, metrics_of, panel_of, write_each, write_overview
from farflung.cli.plot.runs import Run, read_run
from farflung.errors import OurFault, UserError

SUFFIXES = ("png", "svg", "pdf")
MAX_RUNS = 64


def run_plot(arguments: Namespace) -> int:
    """Draw; prints where the pictures are."""
    if len(arguments.runs) > MAX_RUNS:
        raise UserError(f"{len(arguments.runs)} runs: at most {MAX_RUNS} can be told apart on one page")
    if not 0 <= arguments.smooth < 1:
        raise UserError(f"--smooth is {arguments.smooth}: it must be at least 0 and below 1")
    runs = _told_apart([read_run(Path(path)) for path in arguments.runs])
    look = Look(axis=arguments.x, smoothing=arguments.smooth, is_grouped=arguments.group)
    chosen = _chosen(arguments.metrics, runs)
    try:
        if arguments.each:
            paths = write_each(Path(arguments.each), runs, look, chosen, arguments.format)
        else:
            paths = [_out(arguments, runs)]
            write_overview(paths[0], runs, look, chosen, title=", ".join(families(runs, look)))
    except OSError as error:
        raise OurFault(f"cannot write {error.filename}: {error.strerror or error}") from error
    sys.stdout.writelines(f"{path}\n" for path in paths)
    return 0


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """Runs of one name in different places get a number, so that no line hides another."""
    from dataclasses import replace

    seen: dict[str, int] = {}
    named = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        named.append(run if seen[run.name] == 1 else replace(run, name=f"{run.name} ({seen[run.name]})"))
    return named


def _chosen(wanted: str | None, runs: Sequence[Run]) -> Sequence[Panel]:
    if wanted is None:
        return PANELS
    known = {panel.name: panel for panel in FREQUENT}
    metrics = metrics_of(runs)
    chosen = []
    for name in wanted.split(","):
        if name not in known and name not in metrics:
            raise UserError(f"--metrics has {name!r}: known are {', '.join([*known, *metrics])}")
        chosen.append(known.get(name) or panel_of(name))
    return chosen


def _out(arguments: Namespace, runs: Sequence[Run]) -> Path:
    """As told; else beside the run, or for several in the current folder."""
    if arguments.out:
        path = Path(arguments.out)
        if path.suffix.lstrip(".") not in SUFFIXES:
            raise UserError(f"--out is {path}: it must end in .{', .'.join(SUFFIXES)}")
        if not path.parent.is_dir():
            raise UserError(f"--out is {path}: there is no folder {path.parent}")
        return path
    root = Path(arguments.runs[0])
    folder = (root.parent if root.is_file() else root) if len(runs) == 1 else Path()
    return folder / f"plot.{arguments.format}"
