"""humaneval: the 164 Python functions of HumanEval, for evaluation. Programs run in a sandbox (`code@1`).

The prompt is the function's head with its docstring and asks for the whole function in a fenced block. The tests are
the published `check(candidate)`, behind the prompt, since some of them call helpers that stand there. The demonstration
is the published solution.

Published test items are in many models' training data: compare a model with itself, before and after.
"""

import json
from collections.abc import Mapping

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

FILE = "humaneval.jsonl.gz"
INSTRUCTION = (
    "Complete this Python function. Reply with the whole program, imports and helpers included, in one fenced block."
)


class HumanEvalConfig(Config):
    grader: str = Field("code@1", pattern="^[a-z-]+@[0-9]+$")
    """NAME@VERSION; its reference is the tests of `sandbox.code.tests`."""


class HumanEval:
    """Implements `Environment` and `Graded`."""

    name = "humaneval"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:  # noqa: ARG002 - the order is the published one
        self.config = parse_arguments(HumanEvalConfig, self.name, args)
        self._items = bundled_items(FILE)
        self.num_tasks = 0
        self.num_heldout_tasks = len(self._items)
        self.target_lengths: tuple[int, ...] = ()
        self.graders = (grader_spec(self.config.grader),)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        item = item_at(self._items, split, index)
        tests = {"kind": "pytest", "source": f"{item['prompt']}\n{item['test']}", "entry": item["entry_point"]}
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{INSTRUCTION}\n\n```python\n{item['prompt'].rstrip()}\n```",
            answer=json.dumps(tests),
            target_length=target_length,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        return as_grade(build_grader(self.graders[0]).grade(task.answer, completion))

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one published solution
        item = self._items[index_of(task.task_id)]
        return f"```python\n{item['prompt']}{item['canonical_solution'].rstrip()}\n```"

    def alphabet(self) -> str | None:
        return None
