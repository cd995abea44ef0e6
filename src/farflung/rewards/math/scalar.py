"""Exact scalars: quotients of two polynomials, compared by cross-multiplication.

    a/b = c/d   <=>   a*d - b*c = 0

No common factor needs to be found, so 1/sqrt(2) = sqrt(2)/2 and 1/(1+sqrt(2)) = sqrt(2)-1 come out equal. A denominator
of one term is moved into the numerator. This module knows no roots, logarithms or text: see `powers` and `functions`.
"""

from fractions import Fraction
from typing import NamedTuple

from farflung.rewards.math import polynomial
from farflung.rewards.math.limits import Budget, Undefined
from farflung.rewards.math.polynomial import ONE, Kind, Polynomial, Rational


class Scalar(NamedTuple):
    """`numerator / denominator`; the denominator is not the zero polynomial."""

    numerator: Polynomial
    denominator: Polynomial = ONE


ZERO = Scalar(polynomial.ZERO)


def from_rational(value: Rational) -> Scalar:
    """The scalar of one number."""
    return Scalar(polynomial.constant(value))


def as_rational(value: Scalar) -> Rational | None:
    """Its value if it is seen to be a rational number, else None."""
    if value.denominator != ONE:
        return None
    return polynomial.rational_value(value.numerator)


def as_integer(value: Scalar) -> int | None:
    """Its value if it is seen to be an integer, else None."""
    rational = as_rational(value)
    return rational.numerator if rational is not None and rational.denominator == 1 else None


def add(left: Scalar, right: Scalar, budget: Budget) -> Scalar:
    """Sum."""
    if left.denominator == right.denominator:
        return Scalar(polynomial.add(left.numerator, right.numerator, budget), left.denominator)
    return Scalar(
        polynomial.add(
            polynomial.multiply(left.numerator, right.denominator, budget),
            polynomial.multiply(right.numerator, left.denominator, budget),
            budget,
        ),
        polynomial.multiply(left.denominator, right.denominator, budget),
    )


def negate(value: Scalar, budget: Budget) -> Scalar:
    """Its negative."""
    return Scalar(polynomial.scale(value.numerator, -1, budget), value.denominator)


def subtract(left: Scalar, right: Scalar, budget: Budget) -> Scalar:
    """Difference."""
    return add(left, negate(right, budget), budget)


def multiply(left: Scalar, right: Scalar, budget: Budget) -> Scalar:
    """Product."""
    denominator = ONE
    if left.denominator != ONE or right.denominator != ONE:
        denominator = polynomial.multiply(left.denominator, right.denominator, budget)
    return Scalar(polynomial.multiply(left.numerator, right.numerator, budget), denominator)


def divide(left: Scalar, right: Scalar, budget: Budget) -> Scalar:
    """Quotient; raises Undefined for a divisor of zero."""
    return multiply(left, inverse(right, budget), budget)


def inverse(value: Scalar, budget: Budget) -> Scalar:
    """1 / value; raises Undefined for zero."""
    if not value.numerator:
        raise Undefined("division by zero")
    if len(value.numerator) > 1:
        return Scalar(value.denominator, value.numerator)
    ((monomial, coefficient),) = value.numerator.items()
    exponents: dict[polynomial.Atom, Rational] = {}
    denominator = ONE
    for atom, exponent in monomial:
        if atom.kind is Kind.ROOT:  # 1 / u^q = u^(1-q) / u
            assert isinstance(atom.key, frozenset)
            exponents[atom] = 1 - exponent
            denominator = polynomial.multiply(denominator, dict(atom.key), budget)
        else:
            exponents[atom] = -exponent
    numerator = polynomial.reduced(exponents, 1 / Fraction(coefficient), budget)
    return Scalar(polynomial.multiply(numerator, value.denominator, budget), denominator)


def integer_power(value: Scalar, exponent: int, budget: Budget) -> Scalar:
    """`value ** exponent`; raises Undefined for a power of zero that is not positive."""
    if exponent == 0 and is_zero(value):
        raise Undefined("zero to the power of zero")
    if exponent < 0:
        return integer_power(inverse(value, budget), -exponent, budget)
    return Scalar(
        polynomial.power(value.numerator, exponent, budget),
        polynomial.power(value.denominator, exponent, budget),
    )


def is_zero(value: Scalar) -> bool:
    """Whether its normal form is zero; True proves that the value is zero."""
    return not value.numerator


def is_proven(value: Scalar) -> bool:
    """Whether a normal form that is not zero proves that the value is not zero."""
    return polynomial.is_proven(value.numerator) and polynomial.is_proven(value.denominator)


def variables(value: Scalar) -> set[str]:
    """Names of its variables, as far as they are not inside opaque atoms."""
    both = polynomial.atoms(value.numerator) | polynomial.atoms(value.denominator)
    return {str(atom.key) for atom in both if atom.kind is Kind.VARIABLE}


def variable(name: str) -> Scalar:
    """The scalar of one variable."""
    return Scalar(polynomial.of_atom(polynomial.Atom(Kind.VARIABLE, name)))
