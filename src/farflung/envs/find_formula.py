"""Find a formula: the prompt `1,2,5,10>` gives f(0), f(1), f(2), f(3) and asks for f: `1+x*x`.

Scientific search in miniature: many formulas fit what is shown, and only what holds at the points that are not shown
(x = 4 to 7) is a discovery. A reward of 1 for a formula as short as the shortest known, less for longer ones:

    reward = correct * max(1/2, 1 - 0.1 * (characters beyond the shortest))

Problems are the value tables of all formulas with at most two operators over x and 1 to `max_number`, each table once:
626 for 9, few enough to be learned by heart, 6,506 for 30.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet
from farflung.envs.tasks import single_turn
from farflung.rewards.extract import after_thinking, final_answer
from farflung.rewards.small_formula import Formula, parse_formula
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

SHOWN, HIDDEN = range(4), range(4, 8)
COST_PER_CHARACTER = 0.1
LEAST_OF_A_DISCOVERY = 0.5
Table = tuple[int, ...]
"""Values of a formula at the shown points."""
_APPLY: Mapping[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class FindFormulaConfig(Config):
    max_number: int = Field(9, ge=2, le=30, description="Largest number of the formulas that are looked for.")


class FindFormula:
    name = "find-formula"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(FindFormulaConfig, self.name, args)
        self._shortest = _shortest_formulas(self.config.max_number)
        self._tables = sorted(self._shortest)
        self._problems = ProblemSet(self.name, seed, len(self._tables))
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        table = self._tables[self._problems.number(split, index)]
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{','.join(map(str, table))}>",
            answer=self._shortest[table],
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        text = (final_answer(completion) or after_thinking(completion) or "").replace(" ", "")
        formula, reference = parse_formula(text), parse_formula(task.answer)
        assert reference is not None
        fits = formula is not None and _values(formula, SHOWN) == _values(reference, SHOWN)
        holds = fits and formula is not None and _values(formula, HIDDEN) == _values(reference, HIDDEN)
        longer = max(0, len(text) - len(task.answer))
        reward = float(holds) * max(LEAST_OF_A_DISCOVERY, 1 - COST_PER_CHARACTER * longer)
        components = {"fits": float(fits), "holds": float(holds), "short": reward}
        return Grade(reward=reward, correct=float(holds), components=components)

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - the shortest is one
        return task.answer

    def level(self, task: Task) -> str:
        return "linear" if task.answer.count("x") < 2 else "quadratic"

    def alphabet(self) -> str:
        return "0123456789,>x+-*()"


def _values(formula: Formula, points: range) -> tuple[int, ...]:
    return tuple(formula.at(x) for x in points)


@cache
def _shortest_formulas(max_number: int) -> dict[Table, str]:
    """Values at the shown points -> the shortest formula, the first in the order of the alphabet among equals."""
    found: dict[Table, str] = {}
    for text, table in _formulas(max_number):
        known = found.get(table)
        if known is None or (len(text), text) < (len(known), known):
            found[table] = text
    return {table: text for table, text in found.items() if len(set(table)) > 1}  # constants are no search


def _formulas(max_number: int) -> Iterator[tuple[str, Table]]:
    """Every formula with its values, reckoned without a parser: there are hundreds of thousands."""
    atoms = {"x": tuple(SHOWN)} | {str(number): (number,) * len(SHOWN) for number in range(1, max_number + 1)}
    yield "x", tuple(SHOWN)
    for (left, of_left), sign, (right, of_right) in product(atoms.items(), _APPLY, atoms.items()):
        pair = _applied(sign, of_left, of_right)
        yield f"{left}{sign}{right}", pair
        for other, (last, of_last) in product(_APPLY, atoms.items()):
            binds_tighter = sign != "*" and other == "*"
            if not binds_tighter:
                yield f"{left}{sign}{right}{other}{last}", _applied(other, pair, of_last)
                continue
            yield f"{left}{sign}{right}*{last}", _applied(sign, of_left, _applied("*", of_right, of_last))
            yield f"({left}{sign}{right})*{last}", _applied("*", pair, of_last)


def _applied(sign: str, left: Table, right: Table) -> Table:
    return tuple(map(_APPLY[sign], left, right))
