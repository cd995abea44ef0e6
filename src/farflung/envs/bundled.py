"""Published test sets that come with this package (`data/NOTICE.md`), for evaluation and never for training.

Every item is held out, in the published order whatever the seed; the training split is empty, so that no pool can be
made of one. Published test items are in many models' training data: compare a model with itself, before and after. This
module does not know what an item means; each set reads its own.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.graders.base import as_grade
from farflung.envs.graders.registry import build_grader, grader_spec
from farflung.envs.tasks import check_index, single_turn
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

GraderLabel = Annotated[str, Field(pattern="^[a-z-]+@[0-9]+$")]


class BundledConfig(Config):
    grader: GraderLabel
    """NAME@VERSION."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exercise:
    """One item, read."""

    prompt: str
    answer: str
    """The grader's reference."""
    demonstration: str
    """The published solution, as a completion."""
    level: str = ""


class BundledSet:
    """Implements `Environment`, `Graded` and `Levelled`, for a set that says how its items are read."""

    name: str
    file: str
    config_type: type[BundledConfig]

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:  # noqa: ARG002 - the order is the published one
        self.config = parse_arguments(self.config_type, self.name, args)
        self._items = bundled_items(self.file)
        self.num_tasks = 0
        self.num_heldout_tasks = len(self._items)
        self.target_lengths: tuple[int, ...] = ()
        self.graders = (grader_spec(self.config.grader),)

    @staticmethod
    def read(item: Mapping[str, Any]) -> Exercise:
        """What an item of the file means."""
        raise NotImplementedError

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        check_index(split, index, len(self._items) if split == "heldout" else 0)
        exercise = self.read(self._items[index])
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=exercise.prompt,
            answer=exercise.answer,
            target_length=target_length,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        return as_grade(build_grader(self.graders[0]).grade(task.answer, completion))

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one published solution
        return self._exercise(task).demonstration

    def alphabet(self) -> str | None:
        return None

    def level(self, task: Task) -> str:
        return self._exercise(task).level

    def _exercise(self, task: Task) -> Exercise:
        return self.read(self._items[int(task.task_id.rpartition("/")[2])])


@lru_cache(8)
def bundled_items(name: str) -> tuple[dict[str, Any], ...]:
    """The items of a JSON-lines file of `data/`, gzipped or not."""
    data = (files("farflung.envs") / "data" / name).read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode("utf-8")
    return tuple(json.loads(line) for line in text.splitlines() if line)
