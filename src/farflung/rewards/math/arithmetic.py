r"""Arithmetic trees -> scalars and bounds.

A tree with `\pm` has two values: it is computed once with each sign, so `\pm` and `\mp` move together. This module
knows no lists, relations or sets.
"""

from collections.abc import Iterator
from fractions import Fraction

from farflung.rewards.math import functions, polynomial, powers, scalar
from farflung.rewards.math.angles import PI
from farflung.rewards.math.limits import Budget, NotExact
from farflung.rewards.math.scalar import Scalar
from farflung.rewards.math.syntax import (
    Call,
    Group,
    InBase,
    Listing,
    Mixed,
    Name,
    Negative,
    Node,
    Number,
    PlusMinus,
    Power,
    Product,
    Quantity,
    Quotient,
    Sum,
)
from farflung.rewards.math.values import Bound, Infinite
from farflung.rewards.math.word_lists import NUMBER_SET_NAMES

_CONSTANTS = {
    "pi": Scalar(polynomial.of_atom(PI)),
    "e": Scalar(polynomial.of_atom(powers.E)),
    "i": Scalar(polynomial.of_atom(powers.IMAGINARY)),
}
_DEGREE = Scalar({frozenset([(PI, 1)]): Fraction(1, 180)})
_NO_SCALARS = NUMBER_SET_NAMES | {"infinity", "emptyset", "circ"}


def bound_value(node: Node, budget: Budget, sign: int = 1) -> Bound:
    r"""A scalar or an infinity; `sign` is what `\pm` stands for."""
    match node:
        case Name("infinity"):
            return Infinite(1)
        case Negative(operand):
            value = bound_value(operand, budget, sign)
            return Infinite(-value.sign) if isinstance(value, Infinite) else scalar.negate(value, budget)
    return scalar_value(node, budget, sign)


def scalar_value(node: Node, budget: Budget, sign: int = 1) -> Scalar:
    """Value of arithmetic; raises NotExact for what is no scalar, OverLimits, Undefined."""
    budget.spend()
    match node:
        case Number(value):
            return scalar.from_rational(value)
        case Name(text):
            if text in _NO_SCALARS:
                raise NotExact(f"{text} in arithmetic")
            return _CONSTANTS[text] if text in _CONSTANTS else scalar.variable(text)
        case Sum(terms):
            total = scalar_value(terms[0], budget, sign)
            for term in terms[1:]:
                total = scalar.add(total, scalar_value(term, budget, sign), budget)
            return total
        case Negative(operand):
            return scalar.negate(scalar_value(operand, budget, sign), budget)
        case PlusMinus(operand, is_flipped):
            upper = scalar_value(operand, budget, sign)
            return scalar.negate(upper, budget) if (sign < 0) != is_flipped else upper
        case Product(factors):
            total = scalar_value(factors[0], budget, sign)
            for factor in factors[1:]:
                total = scalar.multiply(total, scalar_value(factor, budget, sign), budget)
            return total
        case Quotient(numerator, denominator):
            return scalar.divide(scalar_value(numerator, budget, sign), scalar_value(denominator, budget, sign), budget)
        case Mixed(whole, fraction):
            return scalar.add(scalar_value(whole, budget), scalar_value(fraction, budget), budget)
        case Power(base, exponent):
            return powers.power(scalar_value(base, budget, sign), scalar_value(exponent, budget, sign), budget)
        case Call(name, arguments):
            values = tuple(_argument(argument, budget, sign) for argument in arguments)
            return functions.apply(name, values, budget)
        case Quantity(inner, "%"):
            return scalar.divide(scalar_value(inner, budget, sign), scalar.from_rational(100), budget)
    raise NotExact(f"{type(node).__name__} in arithmetic")


def _argument(node: Node, budget: Budget, sign: int) -> Scalar:
    """An argument of a function, where degrees are an angle."""
    if isinstance(node, Quantity) and node.unit == "deg":
        return scalar.multiply(scalar_value(node.value, budget, sign), _DEGREE, budget)
    return scalar_value(node, budget, sign)


def has_plus_minus(node: Node) -> bool:
    r"""Whether `\pm` stands anywhere in it."""
    return bool(plus_minus_signs(node))


def plus_minus_signs(node: Node) -> list[PlusMinus]:
    r"""Every `\pm` and `\mp` in it."""
    return [part for part in parts(node) if isinstance(part, PlusMinus)]


def parts(node: Node) -> Iterator[Node]:
    """The node and everything below it that is arithmetic or a group."""
    pending = [node]
    while pending:
        part = pending.pop()
        yield part
        match part:
            case Sum(inner) | Product(inner) | Listing(inner) | Group(_, inner, _) | Call(_, inner):
                pending.extend(inner)
            case Negative(operand) | PlusMinus(operand):
                pending.append(operand)
            case Quotient(left, right) | Power(left, right):
                pending += (left, right)
            case Quantity(inner_value, _):
                pending.append(inner_value)


def numeral_value(numeral: InBase) -> Fraction:
    """Value of a numeral with a base; raises NotExact for a digit that the base does not have."""
    if any(int(digit) >= numeral.base for digit in numeral.digits):
        raise NotExact("a digit that the base does not have")
    total = 0
    for digit in numeral.digits:
        total = total * numeral.base + int(digit)
    return Fraction(total)
