"""Sort digits: the prompt `402917>` asks for `012479`.

Problem number n is the n-th string of `num_digits` decimal digits, so every prompt is exactly one problem and the
splits of `ProblemSet` share none. The reward is 1 for the right string and 0 for any other.
"""

from collections.abc import Mapping

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet
from farflung.envs.tasks import single_turn
from farflung.rewards.exact import grade_text
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

DIGITS = "0123456789"


class SortDigitsConfig(Config):
    num_digits: int = Field(6, ge=1, le=15)
    """Length of the string; there are 10**num_digits problems."""


class SortDigits:
    """The quickstart's task: short, exact, learnable by a model of 0.1 million parameters."""

    name = "sort-digits"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(SortDigitsConfig, self.name, args)
        self._problems = ProblemSet(self.name, seed, 10**self.config.num_digits)
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        digits = str(self._problems.number(split, index)).zfill(self.config.num_digits)
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{digits}>",
            answer="".join(sorted(digits)),
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        reward = grade_text(task.answer, completion)
        return Grade(reward=reward, correct=reward)

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one right answer
        return task.answer

    def alphabet(self) -> str:
        return DIGITS + ">"
