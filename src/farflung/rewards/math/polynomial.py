"""Polynomials with rational coefficients over atoms, in a normal form that decides equality.

    5 + 2*sqrt(12)*pi*x   ->   {1: 5, 3^(1/2) * pi * x: 4}

A monomial maps atoms to exponents, which may be negative or fractional. Multiplication brings products of atoms to
their normal form: 3^(1/2) * 3^(1/2) = 3, i^2 = -1. Roots of different primes are linearly independent over the
rationals (Besicovitch 1940), so for them equal values have equal polynomials. pi, e and logarithms of primes are taken
to be algebraically independent (Schanuel's conjecture). Atoms of kind OPAQUE and ROOT carry no such promise: with them
equal polynomials are equal values, but different ones prove nothing. This module knows no text and no division.
"""

from collections.abc import Hashable
from enum import IntEnum
from fractions import Fraction
from math import floor
from typing import NamedTuple

from farflung.rewards.math.limits import MAX_EXPONENT, MAX_TERMS, Budget, OverLimits

Rational = int | Fraction


class Kind(IntEnum):
    """What an atom is, and with it how its powers are reduced."""

    VARIABLE = 0
    CONSTANT = 1  # "pi", "e"
    PRIME = 2  # a prime number under a root: exponents in [0, 1)
    IMAGINARY = 3  # i: exponents 0 and 1
    SIGN = 4  # (-1)^m for a monomial m of variables, which then stand for integers: exponents 0 and 1
    LOG = 5  # natural logarithm of a prime
    POWER = 6  # b^m for a prime or a constant b and a monomial m
    ROOT = 7  # a root of a polynomial: exponents in [0, 1)
    OPAQUE = 8  # a function value without a normal form


class Atom(NamedTuple):
    """One indivisible factor."""

    kind: Kind
    key: Hashable


Monomial = frozenset[tuple[Atom, Rational]]
Polynomial = dict[Monomial, Rational]
"""Coefficient of each monomial, none of them zero. Never changed after it was made."""

UNIT: Monomial = frozenset()
ZERO: Polynomial = {}
ONE: Polynomial = {UNIT: 1}

_FREE_KINDS = (Kind.VARIABLE, Kind.CONSTANT, Kind.LOG, Kind.POWER, Kind.OPAQUE)
_UNPROVEN_KINDS = (Kind.ROOT, Kind.OPAQUE)


def constant(value: Rational) -> Polynomial:
    """The polynomial of one number."""
    return {UNIT: value} if value else ZERO


def of_atom(atom: Atom, exponent: Rational = 1) -> Polynomial:
    """The polynomial of one atom to a power that is already reduced for its kind."""
    return {frozenset([(atom, exponent)]): 1}


def rational_value(polynomial: Polynomial) -> Rational | None:
    """Its value if it is a rational number, else None."""
    if not polynomial:
        return 0
    return polynomial.get(UNIT) if len(polynomial) == 1 else None


def atoms(polynomial: Polynomial) -> set[Atom]:
    """All atoms that occur in it."""
    return {atom for monomial in polynomial for atom, _ in monomial}


def is_proven(polynomial: Polynomial) -> bool:
    """Whether a difference of its normal form from another's proves a difference of values."""
    return all(map(_is_proven_atom, atoms(polynomial)))


def _is_proven_atom(atom: Atom) -> bool:
    if atom.kind is Kind.POWER:  # e^(ln x) is x and 2^(ln 3) is 3^(ln 2), which nothing here knows
        assert isinstance(atom.key, tuple)
        return all(inner.kind is not Kind.LOG and _is_proven_atom(inner) for inner, _ in atom.key[1])
    return atom.kind not in _UNPROVEN_KINDS


def freeze(polynomial: Polynomial) -> Hashable:
    """The polynomial as a key."""
    return frozenset(polynomial.items())


def magnitude(value: Rational) -> Rational:
    """Absolute value."""
    return value if value >= 0 else -value


def num_bits(value: Rational) -> int:
    """Bits of the larger of numerator and denominator."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def add(left: Polynomial, right: Polynomial, budget: Budget) -> Polynomial:
    """Sum."""
    total = dict(left)
    for monomial, coefficient in right.items():
        budget.spend()
        value = total.get(monomial, 0) + coefficient
        if value:
            budget.spend_bits(num_bits(value))
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return _limited(total)


def scale(polynomial: Polynomial, factor: Rational, budget: Budget) -> Polynomial:
    """Product with a number."""
    return multiply(polynomial, constant(factor), budget)


def multiply(left: Polynomial, right: Polynomial, budget: Budget) -> Polynomial:
    """Product, in normal form."""
    budget.spend(len(left) * len(right))
    total: Polynomial = {}
    for left_monomial, left_coefficient in left.items():
        for right_monomial, right_coefficient in right.items():
            budget.spend_bits(num_bits(left_coefficient) + num_bits(right_coefficient))
            coefficient = left_coefficient * right_coefficient
            if not left_monomial or not right_monomial:
                piece = {left_monomial or right_monomial: coefficient}
            else:
                piece = _join(left_monomial, right_monomial, coefficient, budget)
            for monomial, value in piece.items():
                total[monomial] = total.get(monomial, 0) + value
    return _limited({monomial: value for monomial, value in total.items() if value})


def power(polynomial: Polynomial, exponent: int, budget: Budget) -> Polynomial:
    """Its `exponent`-th power, for an exponent of at least 0."""
    if len(polynomial) == 1 and exponent > 1:
        ((monomial, coefficient),) = polynomial.items()
        raised = {atom: count * exponent for atom, count in monomial}
        return reduced(raised, integer_power(coefficient, exponent, budget), budget)
    if polynomial and exponent > MAX_EXPONENT:
        raise OverLimits("exponent too large")
    result = ONE
    for _ in range(exponent if polynomial else min(exponent, 1)):
        result = multiply(result, polynomial, budget)
    return result


def integer_power(base: Rational, exponent: int, budget: Budget) -> Rational:
    """`base ** exponent` for any integer exponent; raises OverLimits before the number becomes too large."""
    if base in (0, 1):
        return base if exponent else 1
    if base == -1:
        return -1 if exponent % 2 else 1
    bits = num_bits(base) * abs(exponent)
    budget.spend_bits(bits)
    return base**exponent if exponent >= 0 else Fraction(base) ** exponent


def reduced(exponents: dict[Atom, Rational], coefficient: Rational, budget: Budget) -> Polynomial:
    """The product of atoms to any powers, brought to normal form.

    Raises OverLimits; a root atom must not come with a negative exponent (see `scalar.inverse`).
    """
    kept: list[tuple[Atom, Rational]] = []
    expanded: list[tuple[Polynomial, int]] = []
    for atom, exponent in exponents.items():
        if not exponent:
            continue
        if atom.kind in _FREE_KINDS:
            kept.append((atom, exponent))
            continue
        if atom.kind in (Kind.IMAGINARY, Kind.SIGN):
            turns = int(exponent) % 4
            if atom.kind is Kind.IMAGINARY and turns >= 2:
                coefficient = -coefficient
            rest: Rational = turns % 2
        else:
            whole = floor(exponent)
            rest = exponent - whole
            if whole and atom.kind is Kind.PRIME:
                assert isinstance(atom.key, int)
                coefficient = coefficient * integer_power(atom.key, whole, budget)
            elif whole:
                assert isinstance(atom.key, frozenset)
                expanded.append((dict(atom.key), whole))
        if rest:
            kept.append((atom, rest))
    budget.spend_bits(num_bits(coefficient))
    result: Polynomial = {frozenset(kept): coefficient}
    for polynomial, whole in expanded:
        result = multiply(result, power(polynomial, whole, budget), budget)
    return result


def _join(left: Monomial, right: Monomial, coefficient: Rational, budget: Budget) -> Polynomial:
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, 0) + exponent
    return reduced(exponents, coefficient, budget)


def _limited(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > MAX_TERMS:
        raise OverLimits("too many terms")
    return polynomial
