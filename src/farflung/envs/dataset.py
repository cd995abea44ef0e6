"""dataset: the tasks of a folder that `farflung data import` or `filter` made, each with its own grader.

A tenth of the rows, at most 1024, is held out: those whose id hashes lowest, so that a row stays on its side when
others are added. Training order is the file's. Name the folder with `path`; `sha256` (from its manifest) makes sure
that every machine has the same rows.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from farflung.config.base import Config
from farflung.data.task_row import TaskRow, read_manifest, read_rows
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.graders.base import as_grade
from farflung.envs.graders.registry import build_grader, grader_spec
from farflung.envs.problems import MAX_HELDOUT_TASKS
from farflung.envs.tasks import check_index
from farflung.errors import UserError
from farflung.wire.pool import EnvArg
from farflung.wire.task import Message, Task

HELDOUT_SHARE = 10


class DatasetConfig(Config):
    path: str = Field("", description="Folder of the data set.")
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$", description="Of its tasks.jsonl; empty = not checked.")
    heldout: bool = Field(True, description="Hold a tenth back; off: everything is for training, and held out as well.")


class Dataset:
    """Implements `Environment`, `Graded` and `Levelled`."""

    name = "dataset"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:  # noqa: ARG002 - the order is the file's
        self.config = parse_arguments(DatasetConfig, self.name, args)
        if not self.config.path:
            raise UserError("argument path of environment dataset is empty: name a folder of farflung data import")
        folder = Path(self.config.path)
        manifest = read_manifest(folder)
        if self.config.sha256 not in ("", manifest.sha256):
            raise UserError(
                f"{folder} has sha256 {manifest.sha256}, and {self.config.sha256} is asked for: fetch that one"
            )
        rows = _rows(folder, manifest.sha256)
        self._rows: dict[Split, tuple[TaskRow, ...]] = _split(rows) if self.config.heldout else _same(rows)
        self._by_id = {f"{split}/{row.id}": row for split, part in self._rows.items() for row in part}
        self.num_tasks, self.num_heldout_tasks = len(self._rows["train"]), len(self._rows["heldout"])
        self.target_lengths: tuple[int, ...] = ()
        self.graders = tuple(grader_spec(label) for label in manifest.graders)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        rows = self._rows[split]
        check_index(split, index, len(rows))
        if target_length:
            raise ValueError(
                f"target length {target_length} of a task of {self.name}: it must be 0, there are no budgets"
            )
        row = rows[index]
        system = (Message(role="system", content=row.system),) if row.system else ()
        messages = (*system, Message(role="user", content=row.prompt))
        return Task(env=self.name, task_id=f"{split}/{row.id}", messages=messages, answer=row.answer)

    def grade(self, task: Task, completion: str) -> Grade:
        return as_grade(build_grader(grader_spec(self._by_id[task.task_id].grader)).grade(task.answer, completion))

    def demonstration(self, task: Task, draw: int) -> str | None:  # noqa: ARG002 - there is one at most
        return self._by_id[task.task_id].solution or None

    def level(self, task: Task) -> str:
        row = self._by_id[task.task_id]
        return row.level or row.source

    def alphabet(self) -> str | None:
        return None


@lru_cache(4)
def _rows(folder: Path, sha256: str) -> tuple[TaskRow, ...]:  # noqa: ARG001 - another file is another entry
    return tuple(read_rows(folder))


def _split(rows: tuple[TaskRow, ...]) -> dict[Split, tuple[TaskRow, ...]]:
    count = min(MAX_HELDOUT_TASKS, max(1, len(rows) // HELDOUT_SHARE))
    ranked = sorted(rows, key=lambda row: hashlib.sha256(row.id.encode()).digest())
    held_out = {row.id for row in ranked[:count]}
    return {
        "train": tuple(row for row in rows if row.id not in held_out),
        "heldout": tuple(row for row in rows if row.id in held_out),
    }


def _same(rows: tuple[TaskRow, ...]) -> dict[Split, tuple[TaskRow, ...]]:
    return {"train": rows, "heldout": rows}
