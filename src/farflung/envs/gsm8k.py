r"""gsm8k-100: a hundred word problems of GSM8K's test split, for evaluation.

The prompt is the problem and how to mark the answer; the grader is `math-exact@1` unless told otherwise: all answers
are whole numbers, which its exact rules decide. The demonstration is the published solution without its calculator
marks. A task's level is the number of calculations in that solution, "2 steps".

Published test items are in many models' training data: compare a model with itself, before and after.
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.bundled import bundled_items, index_of, item_at
from farflung.envs.graders.base import as_grade
from farflung.envs.graders.registry import build_grader, grader_spec
from farflung.envs.tasks import single_turn
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

FILE = "gsm8k-100.jsonl"
INSTRUCTION = r"Think step by step, then write the final number as \boxed{number}."
MAX_STEPS = 6
"""Level of everything from here on."""

_CALCULATION = re.compile(r"<<[^<>]*>>")


class Gsm8kConfig(Config):
    grader: str = Field("math-exact@1", pattern="^[a-z-]+@[0-9]+$")
    """NAME@VERSION; its reference is a number."""


class Gsm8k:
    """Implements `Environment`, `Graded` and `Levelled`."""

    name = "gsm8k-100"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:  # noqa: ARG002 - the order is the published one
        self.config = parse_arguments(Gsm8kConfig, self.name, args)
        self._items = bundled_items(FILE)
        self.num_tasks = 0
        self.num_heldout_tasks = len(self._items)
        self.target_lengths: tuple[int, ...] = ()
        self.graders = (grader_spec(self.config.grader),)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        item = item_at(self._items, split, index)
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{item['question']}\n\n{INSTRUCTION}",
            answer=_answer(item),
            target_length=target_length,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        return as_grade(build_grader(self.graders[0]).grade(task.answer, completion))

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one published solution
        text, _, _ = self._items[index_of(task.task_id)]["solution"].partition("####")
        return f"{_CALCULATION.sub('', text).strip()}\n\\boxed{{{task.answer}}}"

    def alphabet(self) -> str | None:
        return None

    def level(self, task: Task) -> str:
        num_steps = len(_CALCULATION.findall(self._items[index_of(task.task_id)]["solution"]))
        return f"{MAX_STEPS} steps or more" if num_steps >= MAX_STEPS else f"{num_steps} step{'s' * (num_steps != 1)}"


def _answer(item: Mapping[str, Any]) -> str:
    _, _, answer = str(item["solution"]).partition("####")
    return answer.strip().replace(",", "")
