"""Checkpoints: everything that a trainer needs to go on as if it had never stopped.

    checkpoints/v00000012/   masters.safetensors  optimizer.safetensors  progress.json  publication.json
                            complete.json

Written to a temporary folder, synced, given its `complete.json` (size and sha256 of every file) and renamed, so a
folder without the `.tmp` ending is whole or damaged, never half written; a damaged one is passed over for the one
before. An older one goes only after the new one is in place.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec
import torch
from torch import Tensor

from farflung.errors import OurFault, PeerFault
from farflung.model.weights import from_safetensors_bytes, to_safetensors_bytes
from farflung.rl.buffer import BufferSnapshot
from farflung.trainer.lineage import Lineage
from farflung.trainer.marks import Mark, Marks, pass_by
from farflung.wire.canonical import Record, sha256_hex
from farflung.wire.manifest import Publication

logger = logging.getLogger(__name__)

COMPLETE = "complete.json"
TEMPORARY_SUFFIX = ".tmp"
ASIDE_SUFFIX = ".old"
"""Of a checkpoint whose version is saved again, until the new one is in place."""
MASTERS = "masters.safetensors"
OPTIMIZER = "optimizer.safetensors"
PROGRESS = "progress.json"
PUBLICATION = "publication.json"
FILES = (MASTERS, OPTIMIZER, PROGRESS, PUBLICATION)
BEST = "best"
"""Holds the name of the best checkpoint's folder."""


class FileEntry(Record, frozen=True, kw_only=True):
    """What `complete.json` says of a file."""

    num_bytes: int
    sha256: str


class Progress(Record, frozen=True, kw_only=True):
    """The trainer's counters; everything else of a checkpoint is tensors or files."""

    MAX_BYTES: ClassVar[int] = 16 << 20

    pool_digest: str
    policy_version: int
    optimizer_step: int
    initial_accuracy: float
    best_accuracy: float
    tokens_trained: int
    dropped_groups: dict[str, int]
    """Reason -> groups of trained slots that carried no gradient."""
    buffer: dict[str, object]
    """`rl.buffer.BufferSnapshot`."""
    component_state: dict[str, dict[str, object]] = {}
    """Name of a `Component` -> its snapshot."""
    rollbacks_in_a_row: int = 0
    """Refused batches since the last one that was trained on."""
    lineage: Lineage | None = None
    """Settings, data and numerics that the weights were made with."""


class Component(Protocol):
    """A part of a trainer whose state goes into checkpoints under a name of its own (`Setup.components`)."""

    def snapshot(self) -> dict[str, object]:
        """As JSON: strings, finite numbers below 2**53, lists, dicts by string. Taken after the batch is released."""
        ...

    def restore(self, snapshot: dict[str, object]) -> None:
        """Go on from a snapshot. Raises `ValueError` on one that it cannot read."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Checkpoint:
    """A whole trainer at the moment when `publication` was made, whether or not it reached the coordinator."""

    progress: Progress
    publication: Publication
    masters: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]

    @property
    def buffer_snapshot(self) -> BufferSnapshot:
        return msgspec.convert(self.progress.buffer, BufferSnapshot)


class Checkpoints:
    """The checkpoint folder of one run; one writer, any number of readers."""

    def __init__(self, folder: Path, keep: int, marks: Marks = pass_by) -> None:
        self._folder = folder
        self._keep = keep
        self._marks = marks

    def save(self, checkpoint: Checkpoint, *, is_best: bool = False) -> None:
        """Durable when this returns.

        Args:
            is_best: keep this one, instead of the best one before, until there is a better one.

        Raises:
            OurFault: the disk refuses; older checkpoints are untouched.
        """
        self._put(checkpoint.progress.policy_version, _files(checkpoint), is_best=is_best)

    def _put(self, version: int, files: Mapping[str, bytes], *, is_best: bool) -> None:
        target = self._folder / _name(version)
        temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            listing = {name: FileEntry(num_bytes=len(data), sha256=sha256_hex(data)) for name, data in files.items()}
            _write_all_synced(
                temporary,
                {**files, COMPLETE: msgspec.json.encode(listing)},
                meanwhile=lambda: self._marks(Mark.SAVING, version),
            )
            _sync_folder(temporary)
            if target.exists():  # put aside, not removed: there is a whole one at every moment
                target.rename(_aside(target))
            temporary.rename(target)
            if is_best:
                self._mark_best(target.name)
            _sync_folder(self._folder)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise OurFault(f"cannot save checkpoint {target}: {error.strerror or error}") from error
        self._collect()

    def load_newest(self) -> Checkpoint | None:
        """The newest whole checkpoint, None if there is none; damaged ones are passed over with a warning."""
        return self._first_whole(lambda: reversed(self._folders()))

    def load_best(self) -> Checkpoint | None:
        """The one saved as the best; the newest whole one if that is damaged."""
        return self._first_whole(lambda: [*self._best(), *reversed(self._folders())])

    def load(self, version: int) -> Checkpoint | None:
        """That of a certain version, None if there is no whole one."""
        return self._first_whole(lambda: [path for path in self._folders() if path.stem == _name(version)])

    def path_of(self, version: int) -> Path:
        """Where that of a version lies, if there is one."""
        return self._folder / _name(version)

    def _first_whole(self, candidates: Callable[[], Iterable[Path]]) -> Checkpoint | None:
        """Looks again after each failure: what was cleaned away under the reader has a newer one in its place."""
        tried: set[Path] = set()
        while True:
            folder = next((path for path in candidates() if path not in tried), None)
            if folder is None:
                return None
            tried.add(folder)
            try:
                return _load(folder)
            except (OSError, ValueError, msgspec.MsgspecError, PeerFault) as error:
                if folder.exists():
                    logger.warning("checkpoint %s is damaged and is passed over: %s", folder, error)

    def _mark_best(self, name: str) -> None:
        marker = self._folder / BEST
        _write_synced(marker.with_suffix(TEMPORARY_SUFFIX), name.encode())
        marker.with_suffix(TEMPORARY_SUFFIX).rename(marker)

    def _best(self) -> list[Path]:
        try:
            name = (self._folder / BEST).read_text()
        except (OSError, ValueError):
            return []
        return [folder for folder in self._folders() if folder.name == name]

    def _folders(self) -> list[Path]:
        """Ascending by version, what was put aside before what took its place; not unfinished ones."""
        found = (path for path in self._folder.glob("v*") if path.suffix != TEMPORARY_SUFFIX)
        return sorted(found, key=lambda path: (path.stem, path.suffix != ASIDE_SUFFIX))

    def _collect(self) -> None:
        """Remove what is older than the ones to keep, and what a killed trainer left unfinished."""
        finished = [path for path in self._folders() if not path.with_suffix("").exists() or path.suffix == ""]
        kept = {*finished[-self._keep :], *self._best()}
        for folder in self._folder.glob("v*"):
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _name(version: int) -> str:
    return f"v{version:08d}"


def _aside(target: Path) -> Path:
    aside = target.with_name(target.name + ASIDE_SUFFIX)
    shutil.rmtree(aside, ignore_errors=True)
    return aside


def _files(checkpoint: Checkpoint) -> dict[str, bytes]:
    return {
        MASTERS: to_safetensors_bytes(checkpoint.masters, dtype=torch.float32),
        OPTIMIZER: to_safetensors_bytes(checkpoint.optimizer, dtype=torch.float32),
        PROGRESS: checkpoint.progress.to_bytes(),
        PUBLICATION: checkpoint.publication.to_bytes(),
    }


def _load(folder: Path) -> Checkpoint:
    listing = msgspec.json.decode((folder / COMPLETE).read_bytes(), type=dict[str, FileEntry])
    files = {}
    for name in FILES:
        data = (folder / name).read_bytes()
        if listing.get(name) != FileEntry(num_bytes=len(data), sha256=sha256_hex(data)):
            raise ValueError(f"{name} is not what {COMPLETE} says")
        files[name] = data
    return Checkpoint(
        progress=Progress.from_bytes(files[PROGRESS]),
        publication=Publication.from_bytes(files[PUBLICATION]),
        masters=_tensors(files[MASTERS]),
        optimizer=_tensors(files[OPTIMIZER]),
    )


def _tensors(data: bytes) -> dict[str, Tensor]:
    return from_safetensors_bytes(data, max_bytes=len(data))


def _write_synced(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_all_synced(folder: Path, files: Mapping[str, bytes], meanwhile: Callable[[], None]) -> None:
    """At once: file systems commit syncs that arrive together in one go."""
    with ThreadPoolExecutor(max_workers=len(files)) as pool:
        written = pool.map(lambda item: _write_synced(folder / item[0], item[1]), files.items())
        meanwhile()
        for _ in written:
            pass


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
