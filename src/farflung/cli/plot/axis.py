"""What stands on the x axis."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

from farflung.cli.plot.runs import Run, number
from farflung.cli.report.summary import histogram_of
from farflung.telemetry.metrics import MetricsRow

Axis = Literal["versions", "time", "samples", "tokens"]

LABELS: dict[Axis, str] = {
    "versions": "policy version",
    "samples": "rollouts trained on",
    "tokens": "completion tokens of the batches",
}
_UNITS_S = (("hours", 3600.0, 5 * 3600.0), ("minutes", 60.0, 180.0), ("seconds", 1.0, 0.0))
"""Name, length, and the length of a run from which it is used."""


def label(axis: Axis, runs: Sequence[Run]) -> str:
    return LABELS[axis] if axis != "time" else f"{time_unit(runs)[0]} since the start"


def time_unit(runs: Sequence[Run]) -> tuple[str, float]:
    """Name and seconds of the unit that suits the longest of the runs."""
    longest_s = max((run.elapsed_s(run.sessions[-1][1]) for run in runs), default=0.0)
    return next((name, unit_s) for name, unit_s, from_s in _UNITS_S if longest_s >= from_s)


def positions(run: Run, axis: Axis, unit_s: float = 60.0) -> Callable[[MetricsRow], float]:
    """Row -> where it stands. Counts are those up to the row's version, which also places evaluations.

    Args:
        unit_s: seconds that time is counted in.
    """
    if axis == "versions":
        return lambda row: float(row["version"])
    if axis == "time":
        return lambda row: run.elapsed_s(row["time_s"]) / unit_s
    versions = [row["version"] for row in run.train]
    totals = list(accumulate(_rollouts(row) if axis == "samples" else _tokens(row) for row in run.train))
    totals.insert(0, 0.0)
    return lambda row: totals[bisect_right(versions, row["version"])]


def _rollouts(row: MetricsRow) -> float:
    return float(sum(histogram_of(row).values()))


def _tokens(row: MetricsRow) -> float:
    return number(row, "completions/num_tokens") or number(row, "num_tokens") or 0.0
