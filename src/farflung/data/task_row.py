"""Tasks as they lie in a data set of ours: one JSON line each, beside a manifest that says what they are.

    tasks.jsonl       `TaskRow` per line
    manifest.json     `Manifest`: counts, where the rows come from, sha256 of `tasks.jsonl`

A folder is whole or absent. This module knows no foreign format and no grader.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from farflung.errors import UserError

TASKS_FILE, MANIFEST_FILE = "tasks.jsonl", "manifest.json"
FORMAT = "farflung/tasks/1"
MAX_LINE_BYTES = 16 << 20
MAX_MANIFEST_BYTES = 1 << 20


class TaskRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One task."""

    id: str
    """Unique in the data set."""
    prompt: str
    """What the user asks."""
    answer: str
    """The grader's reference, in the grader's own form."""
    grader: str
    """NAME@VERSION."""
    system: str = ""
    level: str = ""
    """How hard it is, as its source says; "" = not known."""
    solution: str = ""
    """A worked answer, for supervised starts; "" = none."""
    source: str = ""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that rows were made from."""

    name: str
    num_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a data set is."""

    format: str = FORMAT
    num_tasks: int
    sha256: str
    """Of `tasks.jsonl`."""
    made_by: str
    """The command, without its paths."""
    graders: dict[str, int]
    """NAME@VERSION -> tasks."""
    licence: str = "unknown"
    sources: tuple[Source, ...] = ()
    skipped: dict[str, int] = {}
    """Why rows of the sources were left out -> how many."""


class TaskWriter:
    """Rows into a new folder, in a stream. Use as a context manager; nothing is visible if the block fails."""

    def __init__(self, folder: Path) -> None:
        """Raises `UserError` where something is already."""
        if folder.exists():
            raise UserError(f"{folder} exists: choose another --out, or remove it")
        self._folder = folder
        self.graders: dict[str, int] = {}
        self.num_tasks = 0
        self._hasher = hashlib.sha256()

    def __enter__(self) -> Self:
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._draft = Path(tempfile.mkdtemp(prefix=f".{self._folder.name}.", dir=self._folder.parent))
        except OSError as error:
            raise UserError(f"{self._folder} cannot be written: {error.strerror or error}") from error
        self._file = (self._draft / TASKS_FILE).open("wb")
        return self

    def add(self, row: TaskRow) -> None:
        line = msgspec.json.encode(row) + b"\n"
        self._file.write(line)
        self._hasher.update(line)
        self.graders[row.grader] = self.graders.get(row.grader, 0) + 1
        self.num_tasks += 1

    def finish(self, *, made_by: str, licence: str, sources: Iterable[Source], skipped: dict[str, int]) -> Manifest:
        """Make the folder visible.

        Raises:
            UserError: no row was added.
        """
        if not self.num_tasks:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in skipped.items()) or "there were none"
            raise UserError(f"no task is left ({reasons}): nothing was written")
        manifest = Manifest(
            num_tasks=self.num_tasks,
            sha256=self._hasher.hexdigest(),
            made_by=made_by,
            graders=dict(sorted(self.graders.items())),
            licence=licence,
            sources=tuple(sources),
            skipped=skipped,
        )
        self._file.flush()
        os.fsync(self._file.fileno())
        (self._draft / MANIFEST_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        self._draft.chmod(0o755)
        self._draft.rename(self._folder)
        return manifest

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._draft.exists():
            for path in self._draft.iterdir():
                path.unlink()
            self._draft.rmdir()


def read_manifest(folder: Path) -> Manifest:
    """Raises `UserError`: no data set, or one of another format."""
    path = folder / MANIFEST_FILE
    try:
        with path.open("rb") as file:
            manifest = msgspec.json.decode(file.read(MAX_MANIFEST_BYTES), type=Manifest)
    except OSError as error:
        raise UserError(
            f"{folder} is no data set ({error.strerror or error}): make one with farflung data import"
        ) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if manifest.format != FORMAT:
        raise UserError(f"{path} has format {manifest.format!r}, this release reads {FORMAT}")
    return manifest


def read_rows(folder: Path) -> Iterator[TaskRow]:
    """Every row, in order; checks the hash at the end.

    Raises:
        UserError: a row is none, or the file is not the one that the manifest describes.
    """
    manifest, path = read_manifest(folder), folder / TASKS_FILE
    hasher = hashlib.sha256()
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                hasher.update(line)
                if len(line) > MAX_LINE_BYTES:
                    raise UserError(f"{path}, row {number} has more than {MAX_LINE_BYTES} bytes")
                try:
                    yield msgspec.json.decode(line, type=TaskRow)
                except (msgspec.MsgspecError, RecursionError) as error:
                    raise UserError(f"{path}, row {number}: {error}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if hasher.hexdigest() != manifest.sha256:
        raise UserError(f"{path} is not the file that its manifest describes: fetch or make the data set again")
