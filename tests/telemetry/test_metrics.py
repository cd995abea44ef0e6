"""Rows survive crashes, full disks and readers that look on."""

import errno
import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.telemetry.metrics import MetricsLog, MetricsRow, MetricsTail, as_it_stands, read_metrics


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    log = MetricsLog(path, now=lambda: 12.5)
    log.write("train", {"reward/mean": 0.5, "staleness/histogram": {"0": 3}}, version=1)
    log.write("warm_start", {"loss": 1.0}, step=0)
    assert read_metrics(path) == [
        {"time_s": 12.5, "kind": "train", "version": 1, "reward/mean": 0.5, "staleness/histogram": {"0": 3}},
        {"time_s": 12.5, "kind": "warm_start", "step": 0, "loss": 1.0},
    ]


def test_an_absent_file_has_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_values_that_are_not_finite_are_written_as_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).write("train", {"grad_norm": float("nan"), "kl": float("inf")})
    (line,) = path.read_text().splitlines()
    row = json.loads(line, parse_constant=pytest.fail)
    assert (row["grad_norm"], row["kl"]) == (None, None)


@settings(max_examples=40)
@given(cut=st.integers(0, 200))
def test_a_crash_at_any_byte_loses_at_most_the_last_row(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "metrics.jsonl"
    log = MetricsLog(path, now=lambda: 1.0)
    for version in range(3):
        log.write("train", {"reward/mean": version / 10}, version=version)
    data = path.read_bytes()
    torn = data[: min(cut, len(data))]
    path.write_bytes(torn)
    num_whole = torn.count(b"\n")

    MetricsLog(path, now=lambda: 2.0).write("train", {}, version=9)
    versions = [row["version"] for row in read_metrics(path)]
    assert versions[:num_whole] == list(range(num_whole))
    assert versions[-1] == 9
    assert len(versions) <= num_whole + 2  # a row cut exactly before its newline is whole


def test_a_tail_yields_each_row_once_and_leaves_unfinished_lines_for_later(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert tail.poll() == []
    path.write_bytes(b'{"kind": "a"}\n{"kind": ')
    assert [row["kind"] for row in tail.poll()] == ["a"]
    with path.open("ab") as file:
        file.write(b'"b"}\n')
    assert [row["kind"] for row in tail.poll()] == ["b"]
    assert tail.poll() == []


def test_lines_that_are_no_rows_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'[1]\n\xff\xfe\n\n{"no": "kind"}\n{"kind": "a"}\n')
    assert read_metrics(path) == [{"kind": "a"}]


def test_a_full_disk_is_reported_once_counted_and_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)

    def no_space(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
        patch.setattr(os, "write", no_space)
        log.write("train", {}, version=0)
        log.write("train", {}, version=1)
    log.write("train", {}, version=2)
    assert log.num_lost == 2
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert [row["version"] for row in read_metrics(path)] == [2]


def test_a_write_cut_short_does_not_spoil_the_next_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    whole_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: whole_write(fd, data[:7]))
        log.write("train", {}, version=0)
    log.write("train", {}, version=1)
    assert [row["version"] for row in read_metrics(path)] == [1]


def test_rows_of_versions_that_were_lost_do_not_stand() -> None:
    def train(version: int, loss: int) -> MetricsRow:
        return {"kind": "train", "version": version, "loss": loss}

    begun: MetricsRow = {"kind": "warm_start", "step": 1}
    back: MetricsRow = {"kind": "stepped_back", "version": 1, "from_version": 3}
    rows = [begun, train(1, 0), train(2, 0), train(3, 0), back, train(2, 1)]
    assert as_it_stands(rows) == [begun, train(1, 0), back, train(2, 1)]
