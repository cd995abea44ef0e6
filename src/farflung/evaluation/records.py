"""Samples of an evaluation as lines of a file, so that an interrupted one goes on where it was.

    {"header": {...}}                     what was evaluated; a file of something else is refused
    {"task": 0, "sample": 1, ...}         one per sample, task after task

What a kill cut short, a line or a task with some of its samples, is dropped and sampled again.

Does not know engines or scores.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from farflung.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRow:
    task: int
    sample: int
    task_id: str
    completion: str
    num_tokens: int
    is_truncated: bool
    reward: float | None
    correct: float | None
    """None = cannot be graded."""
    level: str = ""
    """How hard the task is, or which part of the environment it is from; "" = not known."""


class SampleFile:
    """One evaluation's rows, appended and flushed a chunk at a time.

    Args:
        header: everything that fixes the samples; compared with an existing file's.
        samples_per_task: rows that make a task whole.

    Raises:
        UserError: the file belongs to another evaluation, or is none.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], samples_per_task: int) -> None:
        self._path, self._samples_per_task = path, samples_per_task
        self.rows: list[SampleRow] = []
        """What is already there."""
        self._lock()
        if path.exists() and path.stat().st_size:
            self._resume(dict(header))
        else:
            self._begin(dict(header))

    def _begin(self, header: dict[str, Any]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({"header": header}) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"--out is {self._path.parent}, where nothing can be written ({error.strerror}): choose another"
            ) from error

    def _lock(self) -> None:
        """Until this process ends, however it ends: its descriptor is never closed on purpose."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(
                f"--out is {self._path.parent}, where nothing can be written ({error.strerror}): choose another"
            ) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise UserError(
                f"another evaluation is writing to {self._path.parent}: wait for it, or choose another --out"
            ) from error

    def append(self, rows: Iterable[SampleRow]) -> None:
        """Durable when it returns."""
        new = list(rows)
        self._append(json.dumps(asdict(row)) for row in new)
        self.rows += new

    def _resume(self, header: Mapping[str, Any]) -> None:
        data = self._path.read_bytes()
        lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        try:
            first, *rest = [json.loads(line) for line in lines]
            found = first["header"]
            rows = [SampleRow(**row) for row in rest]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self._path} is not a file of samples: remove it, or choose another --out") from error
        if not rows:  # begun and never sampled: it belongs to nobody
            self._begin(dict(header))
            return
        if found != json.loads(json.dumps(dict(header))):
            changed = [
                f"{key}: {found.get(key)} -> {value}" for key, value in header.items() if found.get(key) != value
            ]
            raise UserError(
                f"{self._path} holds samples of another evaluation ({'; '.join(changed)}): choose another --out"
            )
        num_whole = len(rows) - len(rows) % self._samples_per_task
        self.rows = rows[:num_whole]
        with self._path.open("r+b") as file:
            file.truncate(sum(map(len, lines[: 1 + num_whole])))

    def _append(self, lines: Iterable[str]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
