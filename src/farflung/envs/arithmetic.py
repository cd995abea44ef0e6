"""Arithmetic: the prompt `37-58=` asks for `-21`.

Problem number n encodes (operation, left, right) in mixed radix: one of `ops`, then two operands of [0, max_value].
The reward is 1 for the same integer (`rewards.exact`) and 0 for anything else. The answer may stand alone, as the tiny
models write it, or marked in a longer text (`rewards.extract`), as chat models do.
"""

from collections.abc import Mapping

from pydantic import Field, model_validator

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet
from farflung.envs.tasks import single_turn
from farflung.rewards.exact import grade_integer
from farflung.rewards.extract import after_thinking, final_answer
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task


class ArithmeticConfig(Config):
    max_value: int = Field(99, ge=1, le=10**6)
    """Largest operand; the smallest is 0."""
    ops: str = Field("+-", pattern=r"^[+*-]{1,3}$")
    """Which of +, - and * occur, each equally often."""

    @model_validator(mode="after")
    def _names_each_op_once(self) -> "ArithmeticConfig":
        if len(set(self.ops)) < len(self.ops):
            raise ValueError(f'ops is "{self.ops}": it must name each operation once; drop the repeated one')
        return self


class Arithmetic:
    name = "arithmetic"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(ArithmeticConfig, self.name, args)
        self._num_operands = self.config.max_value + 1
        self._problems = ProblemSet(self.name, seed, len(self.config.ops) * self._num_operands**2)
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        rest, right = divmod(self._problems.number(split, index), self._num_operands)
        op, left = divmod(rest, self._num_operands)
        symbol = self.config.ops[op]
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{left}{symbol}{right}=",
            answer=str(calculate(left, symbol, right)),
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        answer = final_answer(completion) or after_thinking(completion) or ""
        reward = grade_integer(task.answer, answer)
        return Grade(reward=reward, correct=reward)

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one right answer
        return task.answer

    def alphabet(self) -> str:
        return "0123456789=-" + "".join(op for op in self.config.ops if op != "-")


def calculate(left: int, symbol: str, right: int) -> int:
    match symbol:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            raise ValueError(f"operation {symbol!r}: it must be +, - or *")
