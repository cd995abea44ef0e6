"""Letters that may stand for one thing under two names, and bound letters that do.

    x^2 + C, x^2 + c     a constant that is written in either case
    AB, BA, A*B, with a bar   capitals side by side: a product, or the two ends of a segment
    pi*k with k in Z     the same numbers as pi*n with n in Z

Letters inside of opaque atoms (`sin k`) are not looked at. This module does not decide: it finds who may be who.
"""

from collections.abc import Callable

from farflung.rewards.math import polynomial, scalar
from farflung.rewards.math.limits import Budget
from farflung.rewards.math.polynomial import Atom, Kind, Polynomial, Rational
from farflung.rewards.math.scalar import Scalar

_Letters = Callable[[str], tuple[str, ...]]


def variable_name(value: Scalar) -> str | None:
    """The name of a scalar that is one variable, else None."""
    names = scalar.variables(value)
    return next(iter(names)) if len(names) == 1 and value == scalar.variable(next(iter(names))) else None


def may_share_letters(gold: Scalar, answer: Scalar, budget: Budget) -> bool:
    """Whether two scalars are equal once case is dropped and capitals side by side are a product."""
    names = scalar.variables(gold) | scalar.variables(answer)
    if not any(_folded(name) != (name,) for name in names):
        return False
    return scalar.is_zero(scalar.subtract(_read(gold, _folded, budget), _read(answer, _folded, budget), budget))


def renamed(value: Scalar, old: str, new: str, budget: Budget) -> Scalar:
    """`value` with another name for one of its variables."""
    return _read(value, lambda name: (new,) if name == old else (name,), budget)


def _folded(name: str) -> tuple[str, ...]:
    name = name.removeprefix("overline ")
    is_run = 2 <= len(name) <= 3 and name.isalpha() and name.isupper()
    if is_run:
        return tuple(name.lower())
    return (name.lower(),) if len(name) == 1 or name[1:2] == "_" else (name,)


def _read(value: Scalar, letters: _Letters, budget: Budget) -> Scalar:
    return Scalar(
        _read_polynomial(value.numerator, letters, budget), _read_polynomial(value.denominator, letters, budget)
    )


def _read_polynomial(terms: Polynomial, letters: _Letters, budget: Budget) -> Polynomial:
    total = polynomial.ZERO
    for monomial, coefficient in terms.items():
        exponents: dict[Atom, Rational] = {}
        for atom, count in monomial:
            is_variable = atom.kind is Kind.VARIABLE
            for part in (Atom(Kind.VARIABLE, name) for name in letters(str(atom.key))) if is_variable else (atom,):
                exponents[part] = exponents.get(part, 0) + count
        total = polynomial.add(total, polynomial.reduced(exponents, coefficient, budget), budget)
    return total
