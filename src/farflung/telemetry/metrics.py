"""Figures of a run as JSON lines: appended, one object a line, readable after any crash.

    {"time_s": 1785750000.1, "kind": "train", "version": 12, "reward/mean": 0.61, "staleness/max": 4, ...}

`kind` says which figures to expect; names follow the field's conventions (`reward/mean`, `grad_norm`, ...). Values that
are not finite are written as null, since JSON has no word for them. Losing figures never stops a run: a disk that
refuses them is reported once and counted. This module does not know what any figure means.
"""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

MetricValue = str | bool | int | float | None | Mapping[str, int | float]
MetricsRow = dict[str, Any]
"""One line as read back: `time_s`, `kind`, perhaps `version` or `step`, and the figures."""

STEPPED_BACK = "stepped_back"
"""Kind of the row by which a run tells that the versions after the row's `version` are lost and made again."""


class MetricsLog:
    """Appends rows to one file. One writer; any number of readers."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self.num_lost = 0
        """Rows that could not be written."""
        self._is_torn = self._ends_torn()

    def write(
        self, kind: str, metrics: Mapping[str, MetricValue], *, version: int | None = None, step: int | None = None
    ) -> None:
        """Append one row; visible to readers when this returns. Never raises for want of disk."""
        row: dict[str, Any] = {"time_s": self._now(), "kind": kind}
        row |= {name: value for name, value in (("version", version), ("step", step)) if value is not None}
        line = json.dumps({**row, **{name: _finite(value) for name, value in metrics.items()}}) + "\n"
        try:
            self._append(line.encode())
        except OSError as error:
            if self.num_lost == 0:
                logger.warning("metrics are lost from now on, training goes on: %s: %s", self._path, error)
            self.num_lost += 1

    def _append(self, line: bytes) -> None:
        """One `write` on a file opened for appending; a line that was cut short before is ended first."""
        data = b"\n" + line if self._is_torn else line
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(fd, data)
        finally:
            os.close(fd)
        self._is_torn = written < len(data)
        if written < len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written")

    def _ends_torn(self) -> bool:
        """Whether a crash has left the file in the middle of a line."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) == 0:
                    return False
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:
            return False  # absent, or the first `write` will say what is wrong


class MetricsTail:
    """Reads what has been appended since the last call.

    Args:
        offset_bytes: where to begin; a file that is shorter by now was begun anew, and is read from its start.
        max_bytes: read at once; None = all that is there.
    """

    def __init__(self, path: Path, *, offset_bytes: int = 0, max_bytes: int | None = None) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self.offset_bytes = offset_bytes
        """End of what was read."""

    def poll(self) -> list[MetricsRow]:
        """New whole lines, oldest first; an absent file has none yet. A line longer than `max_bytes` is skipped."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self.offset_bytes:
                    self.offset_bytes = 0
                file.seek(self.offset_bytes)
                data = file.read(-1 if self._max_bytes is None else self._max_bytes)
        except FileNotFoundError:
            return []
        whole, newline, rest = data.rpartition(b"\n")
        self.offset_bytes += len(data) if len(rest) == self._max_bytes else len(whole) + len(newline)
        return parse_rows(whole)


def read_metrics(path: Path) -> list[MetricsRow]:
    """Every readable row of a file, oldest first; torn lines are skipped, an absent file has none."""
    return MetricsTail(path).poll()


def as_it_stands(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows without those of versions that were lost: later than the one that the run has stepped back to since.

    >>> rows = [{"kind": "train", "version": version} for version in (1, 2, 3)]
    >>> as_it_stands([*rows, {"kind": "stepped_back", "version": 1}])
    [{'kind': 'train', 'version': 1}, {'kind': 'stepped_back', 'version': 1}]
    """
    standing: list[Mapping[str, Any]] = []
    for row in rows:
        back_to = row.get("version") if row["kind"] == STEPPED_BACK else None
        if isinstance(back_to, int):
            standing = [other for other in standing if _version(other) <= back_to]
        standing.append(row)
    return standing


def _version(row: Mapping[str, Any]) -> int:
    """0 where it has none that is a number."""
    version = row.get("version")
    return version if isinstance(version, int) else 0


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Every readable object of a file of JSON lines, with or without a `kind`."""
    try:
        return _objects(path.read_bytes())
    except FileNotFoundError:
        return []


def parse_rows(data: bytes) -> list[MetricsRow]:
    """Rows of JSON lines; what is not an object with a `kind` is skipped."""
    return [row for row in _objects(data) if "kind" in row]


def _objects(data: bytes) -> list[dict[str, Any]]:
    objects = []
    for line in data.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # the second: brackets without end
            continue
        if isinstance(value, dict):
            objects.append(value)
    return objects


def _finite(value: MetricValue) -> MetricValue:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return dict(value) if isinstance(value, Mapping) else value
