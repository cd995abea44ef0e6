"""Run folders as rows to draw. What is torn, missing, repeated or nonsense never stops a picture."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farflung.cli.report.usage import Usage, fold
from farflung.cli.run_folder import RunFolder
from farflung.errors import UserError
from farflung.telemetry.metrics import MetricsRow, as_it_stands, read_metrics

MAX_NAME_CHARS = 32
MAX_TIME_S = 1e11
"""Seconds since the epoch; what is later was no time."""
_SEED = re.compile(r"[-_.]?(?:seed|s)?[-_.]?\d+$")
_USAGE_FIGURES = {
    "node": ("session", "busy_s", "idle_s", "cpu_s", "tokens"),
    "pool": ("session", "wall_s"),
    "session": ("session", "wall_s"),
}
"""Kind of row of the account -> figures without which it says nothing."""
MAX_VERSION = 2**53
"""Larger ones are no numbers of versions, and no places on an axis."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """What a process did from when to when."""

    activity: str
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Run:
    """What a run has written, of several rows of one version the last."""

    name: str
    is_empty: bool
    """Whether the trainer has told nothing yet."""
    train: tuple[MetricsRow, ...]
    evals: tuple[MetricsRow, ...]
    nodes: tuple[MetricsRow, ...]
    """Heartbeats of its processes, oldest first."""
    pools: tuple[MetricsRow, ...]
    """Counts of the pool, oldest first."""
    usage: Usage
    sessions: tuple[tuple[float, float], ...]
    """Start and end, in seconds since the epoch, of each stretch of the run; what lies between did not happen."""
    intervals: Mapping[str, tuple[Interval, ...]]
    """Process -> what it did when; empty for runs that did not record it."""

    @property
    def family(self) -> str:
        """The name without a number at its end: seeds of one experiment share it."""
        return _SEED.sub("", self.name) or self.name

    @property
    def start_s(self) -> float:
        return self.sessions[0][0]

    def elapsed_s(self, time_s: float) -> float:
        """Seconds that the run had run for at `time_s`; the pauses of one that was continued do not count."""
        return sum(min(end_s, time_s) - start_s for start_s, end_s in self.sessions if start_s < time_s)


def read_run(path: Path) -> Run:
    """A run's folder, or its metrics.jsonl.

    Raises:
        UserError: nothing there to draw.
    """
    root = path.parent if path.is_file() else path
    if not root.is_dir():
        raise UserError(f"{path} is no run: give the folder of a run, such as runs/demo")
    folder = RunFolder(root=root)
    run = load_run(folder)
    if run.is_empty:
        raise UserError(f"{root} has no figures in metrics.jsonl yet: give the folder of a run that has begun")
    return run


def load_run(folder: RunFolder) -> Run:
    """What a folder holds, which may be nothing.

    Raises:
        UserError: a file cannot be read.
    """
    rows = [dict(row) for row in as_it_stands(_cleaned(row) for row in _read(folder.metrics) if _has_time(row))]
    account = [_cleaned(row) for row in _read(folder.usage) if _has_time(row) and _is_account(row)]
    return Run(
        name=plain(folder.root.resolve().name),
        is_empty=not rows,
        train=_last_of_each_version(rows, "train"),
        evals=_last_of_each_version(rows, "eval"),
        nodes=tuple(row for row in account if row["kind"] == "node"),
        pools=tuple(row for row in account if row["kind"] == "pool"),
        usage=fold(account),
        sessions=_sessions(account, [row["time_s"] for row in rows]),
        intervals={plain(file.stem): _intervals(_read(file)) for file in sorted(folder.activity.glob("*.jsonl"))},
    )


def number(row: Mapping[str, Any], name: str) -> float | None:
    """A figure of a row, None where it is absent or no finite number."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def plain(name: str) -> str:
    """A name from anywhere, as short text that no renderer reads as anything else: `$` begins a formula."""
    shown = "".join(c if c.isprintable() and c != "$" else "?" for c in name)[:MAX_NAME_CHARS]
    return f" {shown}" if shown.startswith("_") else shown  # matplotlib leaves names with "_" out of legends


def _read(path: Path) -> list[MetricsRow]:
    try:
        return read_metrics(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def _has_time(row: MetricsRow) -> bool:
    time_s = number(row, "time_s")
    return time_s is not None and 0 <= time_s <= MAX_TIME_S


def _cleaned(row: MetricsRow) -> MetricsRow:
    """Tables hold counts by name only; what does not is left out."""
    return {
        name: {key: count for key in value if (count := number(value, key)) is not None}
        if isinstance(value, dict)
        else value
        for name, value in row.items()
    }


def _is_account(row: MetricsRow) -> bool:
    has_figures = all(number(row, name) is not None for name in _USAGE_FIGURES.get(row["kind"], ("no such kind",)))
    has_names = row["kind"] != "node" or (isinstance(row.get("node"), str) and isinstance(row.get("role"), str))
    return has_figures and has_names


def _last_of_each_version(rows: Sequence[MetricsRow], kind: str) -> tuple[MetricsRow, ...]:
    by_version = {row["version"]: row for row in rows if row["kind"] == kind and _is_version(row.get("version"))}
    return tuple(by_version[version] for version in sorted(by_version))


def _is_version(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_VERSION


def _sessions(account: Sequence[MetricsRow], times_s: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """From the account, which counts the seconds of each; without one, from the first row to the last."""
    first_rows = {row["session"]: row for row in reversed(account) if row["kind"] == "pool"}
    starts_s = sorted(float(row["time_s"] - max(0.0, row["wall_s"])) for row in first_rows.values())
    all_s = sorted([*times_s, *(float(row["time_s"]) for row in account)])
    if not starts_s:
        return ((min(times_s, default=0.0), max(times_s, default=0.0)),)
    starts_s[0] = min(starts_s[0], all_s[0])
    ends_s = [max(time_s for time_s in all_s if time_s < next_s) for next_s in starts_s[1:] if all_s[0] < next_s]
    return tuple(itertools.zip_longest(starts_s, [*ends_s, all_s[-1]], fillvalue=all_s[-1]))


def _intervals(rows: Sequence[MetricsRow]) -> tuple[Interval, ...]:
    found = []
    for row in rows:
        start_s, end_s, activity = number(row, "start_s"), number(row, "end_s"), row.get("activity")
        if start_s is not None and end_s is not None and isinstance(activity, str) and 0 <= start_s < end_s:
            found.append(Interval(activity=activity, start_s=start_s, end_s=end_s))
    return tuple(found)
