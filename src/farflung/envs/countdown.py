"""Countdown: the prompt `3,5,7=22>` asks for a formula that uses each number once and makes the target: `3*5+7`.

Problems are all (numbers, target) that some formula of +, -, * and one pair of brackets reaches with a target of
[1, max_target]. Any formula that does it is right; the reward is 1 or 0.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations_with_replacement, permutations, product

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet, uniform
from farflung.envs.tasks import single_turn
from farflung.rewards.extract import after_thinking, final_answer
from farflung.rewards.small_formula import parse_formula
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

Numbers = tuple[int, ...]


class CountdownConfig(Config):
    num_numbers: int = Field(3, ge=2, le=4)
    """Numbers to use, each once."""
    max_number: int = Field(9, ge=2, le=9)
    """Largest of them; the smallest is 1."""
    max_target: int = Field(50, ge=1, le=500)
    """Largest target; the smallest is 1."""


class Countdown:
    name = "countdown"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(CountdownConfig, self.name, args)
        self._solutions = _solutions(self.config.num_numbers, self.config.max_number, self.config.max_target)
        self._prompts = sorted(self._solutions)
        self._problems = ProblemSet(self.name, seed, len(self._prompts))
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        numbers, target = self._prompts[self._problems.number(split, index)]
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{','.join(map(str, numbers))}={target}>",
            answer=str(target),
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        text = (final_answer(completion) or after_thinking(completion) or "").replace(" ", "")
        formula = parse_formula(text)
        numbers, target = _asked(task)
        uses = formula is not None and "x" not in formula.steps and sorted(formula.numbers) == sorted(numbers)
        correct = float(uses and formula is not None and formula.at() == target)
        return Grade(reward=correct, correct=correct, components={"correct": correct, "uses_numbers": float(uses)})

    def demonstration(self, task: Task, draw: int) -> str:
        found = self._solutions[_asked(task)]
        return found[uniform(len(found), "farflung/countdown-formula/1", task.messages[0].content, draw)]

    def level(self, task: Task) -> str:
        """By whether sums alone get there."""
        return "sums" if any("*" not in formula for formula in self._solutions[_asked(task)]) else "products"

    def alphabet(self) -> str:
        return "0123456789,=>+-*()"


def _asked(task: Task) -> tuple[Numbers, int]:
    numbers, _, target = task.messages[0].content.rstrip(">").partition("=")
    return tuple(map(int, numbers.split(","))), int(target)


@lru_cache(maxsize=4)
def _solutions(num_numbers: int, max_number: int, max_target: int) -> dict[tuple[Numbers, int], tuple[str, ...]]:
    """(ascending numbers, target) -> formulas, the shortest first."""
    found: dict[tuple[Numbers, int], set[str]] = {}
    for numbers in combinations_with_replacement(range(1, max_number + 1), num_numbers):
        for text in _formulas(numbers):
            formula = parse_formula(text)
            assert formula is not None
            target = formula.at()
            if 1 <= target <= max_target:
                found.setdefault((numbers, target), set()).add(text)
    return {problem: tuple(sorted(texts, key=lambda text: (len(text), text))) for problem, texts in found.items()}


def _formulas(numbers: Numbers) -> Iterator[str]:
    for order in set(permutations(map(str, numbers))):
        for signs in product("+-*", repeat=len(order) - 1):
            yield "".join(part for pair in zip(order, (*signs, ""), strict=True) for part in pair)
            if len(order) > 2 and signs[0] != "*" and signs[1] == "*":
                rest = "".join(part for pair in zip(order[2:], (*signs[2:], ""), strict=True) for part in pair)
                yield f"({order[0]}{signs[0]}{order[1]}){signs[1]}{rest}"
