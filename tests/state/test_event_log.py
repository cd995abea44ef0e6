"""The durable log and its in-memory twin: order, atomicity, snapshots, and what a person is told about failures."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farflung.errors import OurFault, UserError
from farflung.state.event_log import SNAPSHOT, Entry, EventLog, SqlEventLog
from farflung.state.memory_log import MemoryEventLog


def entries(start: int, stop: int) -> list[Entry]:
    return [entry(number, b"%d" % number) for number in range(start, stop)]


def entry(sequence: int, body: bytes, kind: str = "thing") -> Entry:
    return Entry(sequence=sequence, at_ms=1000 + sequence, kind=kind, body=body)


def sqlite(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    opened: EventLog = MemoryEventLog() if request.param == "memory" else SqlEventLog(sqlite(tmp_path / "log.db"))
    yield opened
    opened.close()


def test_what_was_written_is_replayed_in_order(log: EventLog) -> None:
    log.write(entries(0, 3))
    log.write(entries(3, 5))
    assert list(log.replay()) == entries(0, 5)


def test_a_snapshot_replaces_what_was_before_it(log: EventLog) -> None:
    log.write(entries(0, 10))
    snapshot = Entry(sequence=10, at_ms=0, kind=SNAPSHOT, body=b"all of it")
    log.write([snapshot, *entries(11, 12)])
    log.write(entries(12, 13))
    assert list(log.replay()) == [snapshot, *entries(11, 13)]


def test_what_a_snapshot_stands_for_is_there_until_it_is_forgotten(log: EventLog) -> None:
    log.write(entries(0, 10))
    snapshot = Entry(sequence=10, at_ms=0, kind=SNAPSHOT, body=b"all of it")
    log.forget(before=10)
    assert log.read(0, 99) == entries(0, 10), "no snapshot stands for them"
    log.write([snapshot, *entries(11, 13)])
    assert log.read(7, 5) == [*entries(7, 10), snapshot, *entries(11, 12)]
    log.forget(before=4)
    assert log.read(0, 99) == [*entries(4, 10), snapshot, *entries(11, 13)]
    log.forget(before=99)
    assert log.read(0, 99) == list(log.replay()) == [snapshot, *entries(11, 13)]


def test_a_gap_is_noticed(log: EventLog) -> None:
    log.write(entries(0, 2))
    log.write(entries(3, 4))
    with pytest.raises(OurFault, match="entry 2 is missing"):
        list(log.replay())


def test_a_log_that_starts_in_the_middle_is_noticed(log: EventLog) -> None:
    log.write(entries(5, 6))
    with pytest.raises(OurFault, match="entry 0 is missing"):
        list(log.replay())


def test_it_survives_being_closed(tmp_path: Path) -> None:
    for start in range(3):
        log = SqlEventLog(sqlite(tmp_path / "new folder" / "log.db"))
        assert list(log.replay()) == entries(0, start)
        log.write(entries(start, start + 1))
        log.close()


def test_the_file_does_not_grow_when_snapshots_are_taken(tmp_path: Path) -> None:
    log = SqlEventLog(sqlite(tmp_path / "log.db"))
    for start in range(0, 510, 51):
        log.write([entry(sequence, bytes(32_000)) for sequence in range(start, start + 50)])
        log.write([entry(start + 50, b"", SNAPSHOT)])
        log.forget(before=start + 51)
    num_bytes = sum(found.stat().st_size for found in tmp_path.iterdir())
    log.close()
    assert num_bytes < 10 << 20, "16 MB were written; one round of 1.6 MB and SQLite's write-ahead log may stay"


def test_a_second_process_is_told_that_the_log_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farflung.state.event_log.LOCK_WAIT_S", 0.05)
    first = SqlEventLog(sqlite(tmp_path / "log.db"))
    with pytest.raises(UserError, match="another process has it open"):
        SqlEventLog(sqlite(tmp_path / "log.db"))
    first.close()
    SqlEventLog(sqlite(tmp_path / "log.db")).close()


def test_two_writers_on_a_database_without_exclusive_lock_collide(tmp_path: Path) -> None:
    """What PostgreSQL would show: the sequence number is the primary key."""
    log = SqlEventLog(sqlite(tmp_path / "log.db"))
    log.write(entries(0, 2))
    with pytest.raises(OurFault, match="another coordinator"):
        log.write(entries(1, 3))
    assert list(log.replay()) == entries(0, 2)
    log.close()


def test_a_full_disk_is_our_fault_and_leaves_whole_transactions(tmp_path: Path) -> None:
    log = SqlEventLog(sqlite(tmp_path / "log.db"))
    log._connection.exec_driver_sql("PRAGMA max_page_count = 20")
    log._connection.commit()
    written: list[Entry] = []

    def fill() -> None:
        for number in range(100):
            log.write([entry(number, bytes(4000))])
            written.append(entry(number, bytes(4000)))

    with pytest.raises(OurFault, match="full"):
        fill()
    assert written
    assert list(log.replay()) == written
    log.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("not a url", "is not a database URL"),
        ("nosuchdatabase://x/y", "is not a database URL"),
        ("postgresql+nosuchdriver://x/y", "is not a database URL"),
        ("sqlite:////proc/nowhere/log.db", "folder cannot be made"),
    ],
)
def test_a_wrong_url_is_explained(url: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        SqlEventLog(url)


def test_a_missing_driver_is_named() -> None:
    with pytest.raises(UserError, match="psycopg2"):
        SqlEventLog("postgresql+psycopg2://x/y")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(UserError, match="not a database"):
        SqlEventLog(sqlite(tmp_path / "log.db"))


def test_a_database_with_another_table_of_this_name_is_refused(tmp_path: Path) -> None:
    engine = sa.create_engine(sqlite(tmp_path / "log.db"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE farflung_events (other TEXT)")
    engine.dispose()
    with pytest.raises(UserError, match="no such column"):
        SqlEventLog(sqlite(tmp_path / "log.db"))


def test_the_password_of_a_database_is_not_printed() -> None:
    with pytest.raises(UserError) as caught:
        SqlEventLog("postgresql+psycopg2://user:hunter2@x/y")
    assert "hunter2" not in str(caught.value)


WRITER = """
import sys
from farflung.state.event_log import Entry, SqlEventLog
log = SqlEventLog(sys.argv[1])
sequence = sum(1 for _ in log.replay())
while True:
    log.write([Entry(sequence=sequence, at_ms=0, kind="thing", body=b"%d" % sequence)])
    print(sequence, flush=True)
    sequence += 1
"""


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged = -1
    for num_lines in (7, 23):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, sqlite(tmp_path / "log.db")], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(num_lines):
            acknowledged = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        acknowledged = max([acknowledged, *(int(line) for line in rest)])
    log = SqlEventLog(sqlite(tmp_path / "log.db"))
    replayed = [entry.sequence for entry in log.replay()]
    log.close()
    assert replayed == list(range(len(replayed)))
    assert replayed[-1] in (acknowledged, acknowledged + 1)
