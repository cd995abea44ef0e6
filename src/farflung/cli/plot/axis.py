"""What stands on the x axis."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

from farflung.cli.plot.runs import Run, number
from farflung.telemetry.metrics import MetricsRow

Axis = Literal["versions", "time", "samples", "tokens"]

LABELS: dict[Axis, str] = {
    "versions": "policy version",
    "time": "minutes since the start",
    "samples": "rollouts trained on",
    "tokens": "completion tokens trained on",
}


def positions(run: Run, axis: Axis) -> Callable[[MetricsRow], float]:
    """Row -> where it stands. Counts are those up to the row's version, which also places evaluations."""
    if axis == "versions":
        return lambda row: float(row["version"])
    if axis == "time":
        return lambda row: (float(row["time_s"]) - run.start_s) / 60
    counts = [
        _rollouts(row) if axis == "samples" else number(row, "completions/num_tokens") or 0.0 for row in run.train
    ]
    totals = dict(zip((row["version"] for row in run.train), accumulate(counts), strict=True))
    return lambda row: _upto(totals, row["version"])


def _rollouts(row: MetricsRow) -> float:
    histogram = row.get("staleness/histogram")
    return float(sum(histogram.values())) if isinstance(histogram, dict) else 0.0


def _upto(totals: dict[int, float], version: int) -> float:
    known: Sequence[int] = [each for each in totals if each <= version]
    return totals[max(known)] if known else 0.0
