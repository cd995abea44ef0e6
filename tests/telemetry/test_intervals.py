"""Intervals of activity: joined, bounded, and without a gap between them."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farflung.telemetry import intervals
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.intervals import IntervalLog
from farflung.telemetry.metrics import MetricsLog, MetricValue, read_metrics


class Rows(MetricsLog):
    """Keeps rows instead of writing them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, kind: str, metrics: Any, *, version: int | None = None, step: int | None = None) -> None:
        self.rows.append({"kind": kind, **metrics})

    def spans(self) -> list[tuple[str, float, float]]:
        return [(row["activity"], row["start_s"], row["end_s"]) for row in self.rows]


def new_log(rows: MetricsLog, min_interval_s: float = 0.05) -> IntervalLog:
    return IntervalLog(
        rows, node="worker-1", role="worker", now=lambda: 0.0, wall=lambda: 1000.0, min_interval_s=min_interval_s
    )


def test_equal_neighbours_are_one_interval_and_the_last_is_written_at_the_end() -> None:
    rows = Rows()
    log = new_log(rows)
    log.add("sampling", 1.0, 2.0)
    log.add("sampling", 2.0, 2.5)
    log.add("waiting for lease", 2.5, 3.0)
    assert rows.spans() == [("sampling", 1001.0, 1002.5)]
    log.close()
    assert rows.spans()[1:] == [("waiting for lease", 1002.5, 1003.0)]


def test_what_is_shorter_than_the_smallest_interval_takes_the_name_of_the_longest_of_its_neighbours() -> None:
    rows = Rows()
    log = new_log(rows)
    log.add("working", 0.0, 0.02)
    log.add("sampling", 0.02, 0.048)
    log.add("working", 0.048, 0.05)
    log.add("submitting", 0.05, 0.2)
    log.close()
    assert rows.spans() == [("sampling", 1000.0, 1000.05), ("submitting", 1000.05, 1000.2)]


def test_a_long_interval_is_written_before_it_ends() -> None:
    rows = Rows()
    log = new_log(rows)
    log.add("waiting for lease", 0.0, 11.0)
    assert rows.spans() == [("waiting for lease", 1000.0, 1011.0)]


def test_a_long_life_writes_few_rows() -> None:
    rows = Rows()
    log = new_log(rows)
    at_s = 0.0
    for _ in range(200_000):
        log.add("sampling", at_s, at_s + 0.3)
        log.add("waiting for lease", at_s + 0.3, at_s + 0.4)
        at_s += 0.4
    assert len(rows.rows) <= 10 * intervals.ROWS_PER_RESOLUTION
    assert rows.spans()[-1][2] > 1000.0 + at_s - 60


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.001, 20.0)), min_size=1, max_size=60))
def test_intervals_follow_one_another_without_a_gap(pieces: list[tuple[str, float]]) -> None:
    rows = Rows()
    log = new_log(rows)
    at_s = 0.0
    for activity, duration_s in pieces:
        log.add(activity, at_s, at_s + duration_s)
        at_s += duration_s
    log.close()
    spans = rows.spans()
    ends = [1000.0, *(end_s for _, _, end_s in spans)]
    assert [start_s for _, start_s, _ in spans] == ends[:-1]
    assert 1000.0 + at_s - ends[-1] < 0.05 + 1e-9


def test_a_clock_tells_every_stretch_of_activity(tmp_path: Path) -> None:
    times_s = iter(range(100))
    path = tmp_path / "activity.jsonl"
    log = new_log(MetricsLog(path, now=lambda: 5.0))
    activity = ActivityClock(lambda: float(next(times_s)), on_end=log.add)
    with activity.waiting("lease"):
        pass
    with activity.busy("sampling"):
        pass
    log.close()
    rows: list[dict[str, MetricValue]] = read_metrics(path)
    assert [row["activity"] for row in rows] == ["starting", "waiting for lease", "working", "sampling"]
    assert rows[-1] == {
        "time_s": 5.0,
        "kind": "activity",
        "start_s": 1003.0,
        "end_s": 1004.0,
        "node": "worker-1",
        "role": "worker",
        "activity": "sampling",
    }
