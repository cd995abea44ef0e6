"""The folder of one run: what lies where, who may write, and whether it holds the same run."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from farflung.config import fields
from farflung.config.base import Config
from farflung.errors import UserError

MAX_DIFFERENCES_SHOWN = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFolder:
    """Paths under `runs/<name>/`. Nothing is created by asking for one."""

    root: Path

    @property
    def config(self) -> Path:
        """The resolved configuration, which every role reads."""
        return self.root / "config.toml"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.root / "logs"

    @property
    def metrics(self) -> Path:
        """Written by the trainer."""
        return self.root / "metrics.jsonl"

    @property
    def usage(self) -> Path:
        """Written by the supervisor."""
        return self.root / "pool.jsonl"

    @property
    def activity(self) -> Path:
        """Folder with what each process did when, one file of intervals per process, written by the processes."""
        return self.root / "activity"

    def sink_position(self, name: str) -> Path:
        """How far the tracker called `name` has come; written by `farflung forward`."""
        return self.root / "sinks" / f"{name}.json"

    @property
    def keys(self) -> Path:
        """Private keys of the roles that ran here, one file each."""
        return self.root / "keys"

    @property
    def samples(self) -> Path:
        """Written by the trainer."""
        return self.root / "samples.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def model(self) -> Path:
        """The newest policy as a Hugging Face folder."""
        return self.root / "model"

    @property
    def store(self) -> Path:
        """Chunks of weights and rollout files, unless the configuration names another place."""
        return self.root / "store"

    @property
    def database(self) -> Path:
        """The coordinator's event log, unless the configuration names another place."""
        return self.root / "coordinator.db"

    @property
    def tokens(self) -> Path:
        """Folder with the secrets that trainer and validators show to the coordinator."""
        return self.root / "tokens"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def curves(self) -> Path:
        return self.root / "curves.png"

    @property
    def samples_page(self) -> Path:
        return self.root / "samples.html"


class FolderLock:
    """One supervisor at a time; the system lets go of the lock when its holder dies."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        """Raises `UserError` when another process holds it."""
        try:
            self._folder.root.mkdir(parents=True, exist_ok=True)
        except (
            FileNotFoundError
        ) as error:  # its parents exist or were made: a place where nothing can be made, as /proc
            raise UserError(
                f"{self._folder.root} cannot be made: choose a folder that can be written to with --run.dir"
            ) from error
        file = self._folder.lock.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            raise UserError(
                f"{self._folder.root} is in use by process {holder}: stop that one first, "
                "or start another run with --run.name"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def differences(before: Config, after: Config, *, free: tuple[str, ...]) -> list[str]:
    """Settings that differ, as "key: old there, new now"; those under a prefix in `free` may."""
    old, new = fields.flatten(before.model_dump(mode="json")), fields.flatten(after.model_dump(mode="json"))
    keys = [key for key in sorted(old.keys() | new.keys()) if not key.startswith(free)]
    return [
        f"{key}: {_shown(old, key)} there, {_shown(new, key)} now"
        for key in keys
        if old.get(key, _ABSENT) != new.get(key, _ABSENT)
    ]


def refuse_differences(folder: RunFolder, lines: list[str]) -> None:
    """Raises `UserError` if there are any: a run's learning must not change under way."""
    if not lines:
        return
    shown = [f"  - {line}" for line in lines[:MAX_DIFFERENCES_SHOWN]]
    if len(lines) > len(shown):
        shown.append(f"  - and {len(lines) - len(shown)} more")
    raise UserError(
        "\n".join(
            [
                f"{folder.root} holds a run with other settings:",
                *shown,
                f"continue it as it was with `farflung run {folder.config}`, or start another with --run.name NAME;",
                "settings of the trainer may change with --trainer.accept_changes true",
            ]
        )
    )


_ABSENT = object()


def _shown(settings: dict[str, Any], key: str) -> str:
    return repr(settings[key]) if key in settings else "absent"
