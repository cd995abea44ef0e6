"""Formulas of a few characters: `(3+5)*7-x`. One parser for every task that asks for one; exact, bounded, no eval.

    sum      product ([+-] product)*
    product  atom (* atom)*
    atom     digits | x | ( sum )

A formula that is too long, too deep or does not parse is None. Knows no task.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_CHARACTERS = 64
MAX_DEPTH = 16
MAX_DIGITS = 6

_TOKEN = re.compile(r"[0-9]+|[x+*()-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed formula in postfix order: numbers, "x", and "+", "-", "*"."""

    steps: tuple[int | str, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """As they are written, in order."""
        return tuple(step for step in self.steps if isinstance(step, int))

    def at(self, x: int = 0) -> int:
        """Its value."""
        stack: list[int] = []
        for step in self.steps:
            if isinstance(step, int):
                stack.append(step)
            elif step == "x":
                stack.append(x)
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(_APPLY[step](left, right))
        return stack[-1]


_APPLY: Mapping[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def parse_formula(text: str) -> Formula | None:
    """The formula, or None for any other text."""
    if len(text) > MAX_CHARACTERS:
        return None
    tokens = _TOKEN.findall(text)
    if not tokens or "".join(tokens) != text or any(len(token) > MAX_DIGITS for token in tokens):
        return None
    parser = _Parser(tokens)
    return Formula(tuple(parser.steps)) if parser.sum(0) and not parser.rest else None


@dataclass(slots=True)
class _Parser:
    rest: list[str]
    steps: list[int | str] = field(default_factory=list)

    def sum(self, depth: int) -> bool:
        return self._chain("+-", depth)

    def _chain(self, operators: str, depth: int) -> bool:
        part = self._product if operators == "+-" else self._atom
        if not part(depth):
            return False
        while self.rest and self.rest[0] in operators:
            sign = self.rest.pop(0)
            if not part(depth):
                return False
            self.steps.append(sign)
        return True

    def _product(self, depth: int) -> bool:
        return self._chain("*", depth)

    def _atom(self, depth: int) -> bool:
        token = self.rest.pop(0) if self.rest else ""
        if token.isdigit() or token == "x":
            self.steps.append(int(token) if token.isdigit() else token)
            return True
        if token != "(" or depth >= MAX_DEPTH or not self.sum(depth + 1):
            return False
        return bool(self.rest) and self.rest.pop(0) == ")"
