"""Forwarding: in order, from where it was, through outages, and never more than once without need."""

import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from farflung.telemetry.sinks import forward
from farflung.telemetry.sinks.forward import Forwarder
from farflung.telemetry.sinks.points import Point
from farflung.telemetry.sinks.position import Position, read_position, write_position


class Tracker:
    """Remembers steps; refuses the attempts whose numbers are in `refuses`."""

    def __init__(self, refuses: Sequence[int] = ()) -> None:
        self.steps: list[int] = []
        self.refuses = refuses
        self.num_attempts = 0
        self.num_opened = 0
        self.num_closed = 0

    def open(self) -> "Tracker":
        self.num_opened += 1
        return self

    def write(self, points: Sequence[Point]) -> None:
        self.num_attempts += 1
        if self.num_attempts in self.refuses:
            raise ConnectionError("the tracker is away")
        self.steps += [point.step for point in points]

    def close(self) -> None:
        self.num_closed += 1


def append(path: Path, *versions: int) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps({"kind": "train", "time_s": 1.0, "version": v, "x": v}) + "\n" for v in versions)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def new(path: Path, tracker: Tracker) -> Forwarder:
    """As a new process would begin."""
    position_path = path.with_name("sink.json")
    return Forwarder([path], read_position(position_path), position_path, tracker.open)


def position(path: Path) -> Position:
    return read_position(path.with_name("sink.json"))


def test_a_later_process_goes_on_where_the_one_before_was_under_the_same_id(path: Path) -> None:
    tracker = Tracker()
    append(path, 1, 2)
    assert new(path, tracker).run(threading.Event(), follow=False)
    first = position(path)
    append(path, 3)
    assert new(path, tracker).run(threading.Event(), follow=False)
    assert tracker.steps == [1, 2, 3]
    assert (position(path).run_id, position(path).num_points) == (first.run_id, 3)
    assert new(path, tracker).run(threading.Event(), follow=False)
    assert tracker.num_opened == tracker.num_closed == 2, "nothing new, so no tracker is bothered"


def test_u1_an_outage_loses_nothing_and_is_told_once(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(forward, "POLL_S", 0.001)
    tracker = Tracker(refuses=(2, 3, 4))
    append(path, 1)
    stop = threading.Event()
    forwarder = new(path, tracker)
    thread = threading.Thread(target=forwarder.run, args=(stop,), kwargs={"follow": True})
    with caplog.at_level(logging.WARNING):
        thread.start()
        while tracker.steps != [1]:
            stop.wait(0.001)
        append(path, 2, 3)
        while position(path).num_points < 3:
            stop.wait(0.001)
        stop.set()
        thread.join()
    assert tracker.steps == [1, 2, 3]
    assert position(path).num_failures == 3
    assert [record.message for record in caplog.records] == [
        "the tracker does not take figures, they are kept and sent again: ConnectionError: the tracker is away"
    ]


def test_what_was_not_taken_at_the_end_is_told_and_is_sent_by_the_next_process(path: Path) -> None:
    append(path, 1)
    assert not new(path, Tracker(refuses=(1,))).run(threading.Event(), follow=False)
    tracker = Tracker()
    assert new(path, tracker).run(threading.Event(), follow=False)
    assert tracker.steps == [1]


def test_a_tracker_that_cannot_be_opened_is_an_outage_too(path: Path) -> None:
    append(path, 1)

    def fail() -> Tracker:
        raise RuntimeError("not logged in")

    position_path = path.with_name("sink.json")
    assert not Forwarder([path], Position(), position_path, fail).run(threading.Event(), follow=False)
    assert position(path).last_failure == "RuntimeError: not logged in"


def test_a_long_file_is_read_in_pieces_and_a_torn_end_is_left_for_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "MAX_BYTES_AT_ONCE", 200)
    append(path, *range(50))
    with path.open("a") as file:
        file.write('{"kind": "train", "time_s": 1')
    tracker = Tracker()
    assert new(path, tracker).run(threading.Event(), follow=False)
    assert tracker.steps == list(range(50))
    assert tracker.num_attempts > 10
    with path.open("a") as file:
        file.write('.0, "version": 50, "x": 1}\n')
    assert new(path, tracker).run(threading.Event(), follow=False)
    assert tracker.steps == list(range(51))


def test_a_line_longer_than_a_piece_is_skipped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "MAX_BYTES_AT_ONCE", 100)
    path.write_text(json.dumps({"kind": "train", "text": "x" * 500}) + "\n")
    append(path, 1)
    tracker = Tracker()
    assert new(path, tracker).run(threading.Event(), follow=False)
    assert tracker.steps == [1]


def test_a_run_that_was_begun_anew_is_read_from_its_start(path: Path) -> None:
    append(path, *range(10))
    tracker = Tracker()
    new(path, tracker).run(threading.Event(), follow=False)
    path.unlink()
    append(path, 7)
    new(path, tracker).run(threading.Event(), follow=False)
    assert tracker.steps == [*range(10), 7]


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"run_id": 1, "offsets_bytes": 3}', "\udcff"])
def test_a_broken_position_is_a_new_beginning(tmp_path: Path, content: str) -> None:
    path = tmp_path / "sink.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    assert read_position(path).num_points == 0


def test_a_position_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "sinks" / "wandb.json"
    kept = Position(run_id="ab", offsets_bytes={"metrics.jsonl": 5}, num_points=2, num_failures=1, last_failure="x")
    write_position(path, kept)
    assert read_position(path) == kept
    assert [each.name for each in path.parent.iterdir()] == ["wandb.json"]
