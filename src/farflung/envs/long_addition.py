"""Long addition, column by column: the prompt `4827+3961=` asks for `8788`, worked out from the right.

    completion   `7+1+0=08;2+6+0=08;8+9+0=17;4+3+1=08;>8788`

A step adds two digits and the carry that the step before wrote; after `>` comes the answer. Every step is a fact that a
tiny model can learn, the sum at a glance is not, so the answer needs the steps. Problem number n has the operands
n // 10^d and n % 10^d, each written with d digits.

The reward is 1 for the right integer after the last `>` (in the whole text, where there is none) and 0 for any other:
what stands before it is the model's own business. `mod-sum` is the opposite: it has rules for its scratchpad.
"""

from collections.abc import Mapping

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet
from farflung.envs.tasks import single_turn
from farflung.rewards.exact import grade_integer
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

ANSWER = ">"


class LongAdditionConfig(Config):
    num_digits: int = Field(4, ge=1, le=7)
    """Digits of each operand; there are 100**num_digits problems."""


class LongAddition:
    """Chain of thought without rules: nine characters a column, graded on the answer alone."""

    name = "long-addition"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(LongAdditionConfig, self.name, args)
        self._num_operands = 10**self.config.num_digits
        self._problems = ProblemSet(self.name, seed, self._num_operands**2)
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        left, right = divmod(self._problems.number(split, index), self._num_operands)
        width = self.config.num_digits
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{left:0{width}}+{right:0{width}}=",
            answer=str(left + right),
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        reward = grade_integer(task.answer, completion.rpartition(ANSWER)[2])
        return Grade(reward=reward, correct=reward)

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one way to write it
        left, _, right = task.messages[0].content.removesuffix("=").partition("+")
        return f"{write_columns(left, right)}{ANSWER}{task.answer}"

    def alphabet(self) -> str:
        return "0123456789+=;" + ANSWER


def write_columns(left: str, right: str) -> str:
    """The steps of adding two numbers of equally many digits, from the right."""
    steps, carry = [], 0
    for a, b in zip(reversed(left), reversed(right), strict=True):
        total = int(a) + int(b) + carry
        steps.append(f"{a}+{b}+{carry}={total:02};")
        carry = total // 10
    return "".join(steps)
