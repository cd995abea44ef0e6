"""Exact sines of rational multiples of pi, and their inverses, as far as square roots of rationals express them."""

from fractions import Fraction

from farflung.rewards.math import polynomial, scalar
from farflung.rewards.math.limits import Budget
from farflung.rewards.math.polynomial import ONE, UNIT, Atom, Kind, Polynomial
from farflung.rewards.math.scalar import Scalar

PI = Atom(Kind.CONSTANT, "pi")

_ROOT_2 = frozenset([(Atom(Kind.PRIME, 2), Fraction(1, 2))])
_ROOT_3 = frozenset([(Atom(Kind.PRIME, 3), Fraction(1, 2))])
_ROOT_6 = _ROOT_2 | _ROOT_3
_HALF = Fraction(1, 2)
_QUARTER = Fraction(1, 4)

_SINES: dict[Fraction, Polynomial] = {
    Fraction(0): {},
    Fraction(1, 12): {_ROOT_6: _QUARTER, _ROOT_2: -_QUARTER},
    Fraction(1, 6): {UNIT: _HALF},
    Fraction(1, 4): {_ROOT_2: _HALF},
    Fraction(1, 3): {_ROOT_3: _HALF},
    Fraction(5, 12): {_ROOT_6: _QUARTER, _ROOT_2: _QUARTER},
    Fraction(1, 2): {UNIT: 1},
}
"""sin(q * pi) for the angles of the first quadrant that need no nested root."""

ARCSINES: dict[object, Fraction] = {polynomial.freeze(value): angle for angle, value in _SINES.items()}
ARCTANGENTS: dict[object, Fraction] = {
    polynomial.freeze({}): Fraction(0),
    polynomial.freeze({_ROOT_3: Fraction(1, 3)}): Fraction(1, 6),
    polynomial.freeze({UNIT: 1}): Fraction(1, 4),
    polynomial.freeze({_ROOT_3: 1}): Fraction(1, 3),
}


def turns_of(value: Scalar) -> Fraction | None:
    """q for an argument of q * pi, None for another."""
    if scalar.is_zero(value):
        return Fraction(0)
    if value.denominator != ONE or len(value.numerator) != 1:
        return None
    ((monomial, coefficient),) = value.numerator.items()
    return Fraction(coefficient) if monomial == frozenset([(PI, 1)]) else None


def sine_of_turns(turns: Fraction, budget: Budget) -> Polynomial | None:
    """sin(turns * pi), None without a table entry."""
    turns %= 2
    sign = 1
    if turns >= 1:
        turns, sign = turns - 1, -1
    entry = _SINES.get(min(turns, 1 - turns))
    return None if entry is None else polynomial.scale(entry, sign, budget)
