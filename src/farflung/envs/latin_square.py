"""Latin square: the prompt `.342/2.3./.421/421.>` is a square of four numbers with holes; the answer fills them in
reading order: `11433`. Each number stands once in every row and column.

Only squares with one solution are asked, so a prompt has one answer. The reward is 1 for it and 0 for anything else;
the share of right numbers goes into `components`.
"""

from collections.abc import Mapping
from functools import cache
from itertools import permutations

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet, shuffled
from farflung.envs.tasks import single_turn
from farflung.rewards.extract import after_thinking
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

SIZE = 4
HOLE = "."
NUM_PATTERNS = 64
"""Sets of holes; each with every square of which they leave one."""


class LatinSquareConfig(Config):
    num_holes: int = Field(5, ge=1, le=10)
    """Numbers to fill in."""


class LatinSquare:
    name = "latin-square"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(LatinSquareConfig, self.name, args)
        self._puzzles = _puzzles(self.config.num_holes)
        self._problems = ProblemSet(self.name, seed, len(self._puzzles))
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        shown, answer = self._puzzles[self._problems.number(split, index)]
        rows = "/".join(shown[start : start + SIZE] for start in range(0, SIZE * SIZE, SIZE))
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{rows}>",
            answer=answer,
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        text = (after_thinking(completion) or "").strip()
        correct = float(text == task.answer)
        right = sum(one == other for one, other in zip(text, task.answer, strict=False))
        longest = max(len(text), len(task.answer))
        return Grade(reward=correct, correct=correct, components={"share_right": right / longest})

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one right answer
        return task.answer

    def alphabet(self) -> str:
        return "1234/>" + HOLE


@cache
def _puzzles(num_holes: int) -> tuple[tuple[str, str], ...]:
    """(what is shown, what fills the holes), of every pattern and square with one solution."""
    found = []
    for pattern in range(NUM_PATTERNS):
        holes = sorted(shuffled(range(SIZE * SIZE), "farflung/latin-square-holes/1", num_holes, pattern)[:num_holes])
        by_shown: dict[str, list[str]] = {}
        for square in _squares():
            shown = "".join(HOLE if place in holes else number for place, number in enumerate(square))
            by_shown.setdefault(shown, []).append("".join(square[place] for place in holes))
        found += [(shown, answers[0]) for shown, answers in by_shown.items() if len(answers) == 1]
    return tuple(sorted(set(found)))


@cache
def _squares() -> tuple[str, ...]:
    """All 576 of order four, row after row."""
    rows = ["".join(row) for row in permutations("1234")]
    found: list[tuple[str, ...]] = [(row,) for row in rows]
    for _ in range(SIZE - 1):
        found = [(*square, row) for square in found for row in rows if _fits(square, row)]
    return tuple("".join(square) for square in found)


def _fits(square: tuple[str, ...], row: str) -> bool:
    return all(above[column] != row[column] for above in square for column in range(SIZE))
