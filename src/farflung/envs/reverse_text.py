"""Reverse text: the prompt `lemons>` asks for `snomel`.

Problem number n is the n-th string of `num_letters` lower-case letters. The reward is 1 for the right string and 0 for
any other; with `partial` it is the share of positions that are right, over the longer of the two strings.
"""

from collections.abc import Mapping

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet, digits_of
from farflung.envs.tasks import single_turn
from farflung.rewards.exact import grade_text
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ReverseTextConfig(Config):
    num_letters: int = Field(6, ge=1, le=12)
    """Length of the string; there are 26**num_letters problems."""
    partial: bool = False
    """Reward the share of right positions instead of all or nothing."""


class ReverseText:
    name = "reverse-text"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(ReverseTextConfig, self.name, args)
        self._problems = ProblemSet(self.name, seed, len(LETTERS) ** self.config.num_letters)
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        number = self._problems.number(split, index)
        text = "".join(LETTERS[digit] for digit in digits_of(number, len(LETTERS), self.config.num_letters))
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{text}>",
            answer=text[::-1],
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        correct = grade_text(task.answer, completion)
        if not self.config.partial:
            return Grade(reward=correct, correct=correct)
        return Grade(reward=share_of_right_positions(task.answer, completion.strip()), correct=correct)

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one right answer
        return task.answer

    def alphabet(self) -> str:
        return LETTERS + ">"


def share_of_right_positions(reference: str, answer: str) -> float:
    """Equal characters at equal positions over the longer length, so that neither padding nor cutting pays."""
    longer = max(len(reference), len(answer))
    return sum(a == b for a, b in zip(reference, answer, strict=False)) / longer if longer else 0.0
