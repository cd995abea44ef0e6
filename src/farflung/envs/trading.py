"""Trading: the prompt `351624>` is a price a day; the answer says for each day b (buy), s (sell) or - (wait): `bsbsbs`.

At most one unit is held. Buying while holding, selling while not, another letter or another number of days is no plan.
What is still held at the end is lost.

    profit  = what sales brought - what purchases cost
    reward  = 1 if the profit is the best that was possible, else profit / best, at least 0; no plan: 0

The best plan buys before every rise and sells before every fall, so the optimum is the sum of all rises. Doing nothing
is the best plan where no price rises.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet, digits_of
from farflung.envs.tasks import single_turn
from farflung.rewards.extract import after_thinking
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

BUY, SELL, WAIT = "b", "s", "-"
NUM_PRICES = 9
"""From 1 to 9."""


class TradingConfig(Config):
    num_days: int = Field(6, ge=2, le=12)
    """Days of a task; there are 9**num_days tasks."""


class Trading:
    name = "trading"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(TradingConfig, self.name, args)
        self._problems = ProblemSet(self.name, seed, NUM_PRICES**self.config.num_days)
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        number = self._problems.number(split, index)
        prices = [digit + 1 for digit in digits_of(number, NUM_PRICES, self.config.num_days)]
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{''.join(map(str, prices))}>",
            answer=best_plan(prices),
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        prices = _prices(task)
        best, profit = profit_of(prices, task.answer), profit_of(prices, (after_thinking(completion) or "").strip())
        assert best is not None
        correct = float(profit == best)
        reward = correct if correct or not best or profit is None else max(0.0, profit / best)
        return Grade(
            reward=reward,
            correct=correct,
            components={"profit": float(profit or 0), "is_a_plan": float(profit is not None)},
        )

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - there is one best plan
        return task.answer

    def level(self, task: Task) -> str:
        return f"{task.answer.count(BUY)} trades"

    def alphabet(self) -> str:
        return "123456789>" + BUY + SELL + WAIT


def _prices(task: Task) -> list[int]:
    return [int(price) for price in task.messages[0].content.rstrip(">")]


def profit_of(prices: Sequence[int], plan: str) -> int | None:
    """What a plan earns; None if it is none."""
    if len(plan) != len(prices):
        return None
    cash, holds = 0, False
    for price, action in zip(prices, plan, strict=True):
        if action == BUY and not holds:
            cash, holds = cash - price, True
        elif action == SELL and holds:
            cash, holds = cash + price, False
        elif action != WAIT:
            return None
    return cash


def best_plan(prices: Sequence[int]) -> str:
    """Holds exactly over the rises; waits as long as prices stand still."""
    moves = [after - before for before, after in pairwise(prices)]
    actions, holds = [], False
    for day in range(len(prices)):
        ahead = next((move for move in moves[day:] if move), -1)
        wants = ahead > 0
        actions.append(WAIT if wants == holds else BUY if wants else SELL)
        holds = wants
    return "".join(actions)
