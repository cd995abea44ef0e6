"""Modular sum with a scratchpad and a thinking budget.

    prompt       `4:403122=`                           think in 4 steps; without a budget only `403122=`
    completion   `[40=4;3=2;12=0;2=2;]2`               base 5

A step takes the next one or two digits and writes the running sum modulo `base`; after the last one comes the answer.
Fewer steps mean harder mental arithmetic, so a budget competes with being right.

    reward = correct - alpha * length_error            length_error = |steps - target|, 0 without a budget

A scratchpad counts only if it is honest work on this prompt: `[`, steps whose left sides are the prompt's digits in
order, `]`, one answer digit, nothing else. The running sums may be wrong, that is what is learnt. Any other text
(empty, no scratchpad, unclosed, invented steps, two answers, overlong) is malformed: it is not correct, and its length
error is one step worse than that of the worst scratchpad that the prompt allows, so no malformed text beats a
well-formed one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet, digits_of, shuffled, uniform
from farflung.envs.tasks import single_turn
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

THINK_OPEN, THINK_CLOSE = "[", "]"
MARKERS = ":=;" + THINK_OPEN + THINK_CLOSE

_COMPLETION = re.compile(r"\[((?:[0-9]{1,2}=[0-9];)+)\]([0-9])")
_NUM_MARKER_CHARS_PER_STEP = 3
"""`=`, the running sum and `;`."""


class ModSumConfig(Config):
    num_digits: int = Field(6, ge=2, le=12)
    """Digits to add up; there are base**num_digits problems."""
    base: int = Field(5, ge=2, le=10)
    """Digits and sums are modulo this."""
    alpha: float = Field(0.2, ge=0, le=10)
    """Reward lost for each step beside the target."""
    corr: float = Field(0.4, ge=0, le=1)
    """Share of demonstrations that honour the target; the others take a random number of steps."""
    thinking_budget: bool = True
    """Offer every possible number of steps as a target; off: no targets, reward = correct."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scratchpad:
    """A well-formed completion."""

    num_steps: int
    answer: str


class ModSum:
    """Chain of thought in miniature: the scratchpad is what makes the sum possible, and it has a price."""

    name = "mod-sum"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(ModSumConfig, self.name, args)
        num_digits = self.config.num_digits
        self._problems = ProblemSet(self.name, seed, self.config.base**num_digits)
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self._step_counts = tuple(range((num_digits + 1) // 2, num_digits + 1))
        self.target_lengths = self._step_counts if self.config.thinking_budget else ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        digits = digits_of(self._problems.number(split, index), self.config.base, self.config.num_digits)
        budget = f"{target_length}:" if target_length else ""
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{budget}{''.join(map(str, digits))}=",
            answer=str(sum(digits) % self.config.base),
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        scratchpad = read_scratchpad(completion, _prompt_digits(task))
        correct = float(scratchpad is not None and scratchpad.answer == task.answer)
        length_error = self._length_error(scratchpad, task.target_length)
        return Grade(
            reward=correct - self.config.alpha * length_error,
            correct=correct,
            components={
                "correct": correct,
                "length_error": float(length_error),
                "well_formed": float(scratchpad is not None),
            },
        )

    def demonstration(self, task: Task, draw: int) -> str:
        prompt = task.messages[0].content
        honours = uniform(10**9, "farflung/mod-sum-honours/1", prompt, draw) < self.config.corr * 10**9
        if task.target_length and honours:
            num_steps = task.target_length
        else:
            choice = uniform(len(self._step_counts), "farflung/mod-sum-steps/1", prompt, draw)
            num_steps = self._step_counts[choice]
        order = shuffled(range(num_steps), "farflung/mod-sum-doubles/1", prompt, draw)
        doubles = frozenset(order[: self.config.num_digits - num_steps])
        return write_scratchpad(
            _prompt_digits(task), [2 if i in doubles else 1 for i in range(num_steps)], self.config.base
        )

    def alphabet(self) -> str:
        digits = {str(digit) for digit in range(self.config.base)}
        for target in self.target_lengths:
            digits |= set(str(target))
        return "".join(sorted(digits)) + MARKERS

    def _length_error(self, scratchpad: Scratchpad | None, target: int) -> int:
        if not target:
            return 0
        if scratchpad is None:
            return 1 + max(target - self._step_counts[0], self._step_counts[-1] - target)
        return abs(scratchpad.num_steps - target)


def read_scratchpad(completion: str, digits: str) -> Scratchpad | None:
    """The scratchpad of a completion to a prompt with `digits`; None if malformed, at once if it is overlong."""
    longest = len(digits) * (1 + _NUM_MARKER_CHARS_PER_STEP) + len(THINK_OPEN + THINK_CLOSE) + 1
    if len(completion) > longest:
        return None
    match = _COMPLETION.fullmatch(completion)
    if match is None:
        return None
    taken = [step.partition("=")[0] for step in match[1].split(";")[:-1]]
    return Scratchpad(num_steps=len(taken), answer=match[2]) if "".join(taken) == digits else None


def write_scratchpad(digits: str, digits_per_step: list[int], base: int) -> str:
    """The right completion that takes the given numbers of digits in each step."""
    steps, total, position = [], 0, 0
    for count in digits_per_step:
        taken = digits[position : position + count]
        total = (total + sum(map(int, taken))) % base
        steps.append(f"{taken}={total};")
        position += count
    return f"{THINK_OPEN}{''.join(steps)}{THINK_CLOSE}{total}"


def _prompt_digits(task: Task) -> str:
    return task.messages[0].content.rpartition(":")[2].removesuffix("=")
