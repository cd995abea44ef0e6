"""Values of named functions: exact where there is a normal form, else an opaque atom of the function and its argument.

    ln 12 = 2 ln 2 + ln 3      log_2 8 = 3       ln(e^k) = k        5! = 120        C(5, 2) = 10
    sin(pi/6) = 1/2            arctan 1 = pi/4   |-3| = 3           floor(7/2) = 3

The argument of a trigonometric function must be a rational multiple of pi with a table entry to have a value. Plain
`log` may mean base e or 10, so it stays opaque. This module knows no text.
"""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, comb, factorial, floor, gcd, lcm

from farflung.rewards.math import polynomial, scalar
from farflung.rewards.math.angles import ARCSINES, ARCTANGENTS, PI, sine_of_turns, turns_of
from farflung.rewards.math.limits import MAX_FACTORIAL, Budget, NotExact, OverLimits, Undefined
from farflung.rewards.math.polynomial import ONE, Atom, Kind, Polynomial, Rational
from farflung.rewards.math.powers import E, key_of, prime_factors, rational_power
from farflung.rewards.math.scalar import Scalar

_HALF = Fraction(1, 2)


def apply(name: str, arguments: tuple[Scalar, ...], budget: Budget) -> Scalar:
    """Value of the function `name`; raises NotExact for a wrong number of arguments, Undefined, OverLimits."""
    budget.spend()
    if len(arguments) == 1 and name in _UNARY:
        return _UNARY[name](arguments[0], budget)
    if len(arguments) == 2 and name in _BINARY:
        return _BINARY[name](*arguments, budget)
    if name in _CHOICES:
        return _choice(name, arguments)
    return _opaque(name, *arguments)


def _sqrt(value: Scalar, budget: Budget) -> Scalar:
    return rational_power(value, _HALF, budget)


def _cbrt(value: Scalar, budget: Budget) -> Scalar:
    return rational_power(value, Fraction(1, 3), budget)


def _factorial(value: Scalar, budget: Budget) -> Scalar:
    whole = scalar.as_integer(value)
    if whole is None:
        return _opaque("factorial", value)
    if whole < 0:
        raise Undefined("factorial of a negative number")
    if whole > MAX_FACTORIAL:
        raise OverLimits("factorial too large")
    budget.spend_bits(whole * whole.bit_length())
    return scalar.from_rational(factorial(whole))


def _binomial(upper: Scalar, lower: Scalar, budget: Budget) -> Scalar:
    n, k = scalar.as_integer(upper), scalar.as_integer(lower)
    if n is None or k is None:
        return _opaque("binomial", upper, lower)
    if n < 0 or k < 0:
        raise NotExact("binomial coefficient of a negative number")
    if n > MAX_FACTORIAL:
        raise OverLimits("binomial coefficient too large")
    budget.spend_bits(n)
    return scalar.from_rational(comb(n, k))


def _ln(value: Scalar, budget: Budget) -> Scalar:
    if scalar.is_zero(value):
        raise Undefined("logarithm of zero")
    if value.denominator != ONE or len(value.numerator) != 1:
        return _opaque("ln", value)
    ((monomial, coefficient),) = value.numerator.items()
    if coefficient < 0 or any(atom.kind not in (Kind.PRIME, Kind.CONSTANT, Kind.POWER) for atom, _ in monomial):
        return _opaque("ln", value)
    total = _ln_rational(coefficient, budget)
    for atom, exponent in monomial:
        total = polynomial.add(total, polynomial.scale(_ln_atom(atom, budget), exponent, budget), budget)
    return Scalar(total)


def _ln_rational(value: Rational, budget: Budget) -> Polynomial:
    total: Polynomial = {}
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        factors, cofactor = prime_factors(number, budget)
        if cofactor != 1:
            raise NotExact("logarithm of a number that cannot be factored")
        for prime, count in factors.items():
            term = polynomial.scale(_ln_atom(Atom(Kind.PRIME, prime), budget), sign * count, budget)
            total = polynomial.add(total, term, budget)
    return total


def _ln_atom(atom: Atom, budget: Budget) -> Polynomial:
    if atom == E:
        return ONE
    if atom.kind is Kind.PRIME:
        return polynomial.of_atom(Atom(Kind.LOG, atom.key))
    if atom.kind is Kind.POWER:
        assert isinstance(atom.key, tuple)
        base, monomial = atom.key
        return polynomial.multiply(_ln_atom(base, budget), {monomial: 1}, budget)
    return _opaque("ln", Scalar(polynomial.of_atom(atom))).numerator


def _log(base: Scalar, value: Scalar, budget: Budget) -> Scalar:
    return scalar.divide(_ln(value, budget), _ln(base, budget), budget)


def _log_10(value: Scalar, budget: Budget) -> Scalar:
    return _log(scalar.from_rational(10), value, budget)


def _absolute(value: Scalar, budget: Budget) -> Scalar:
    """Sure for a single positive-atom term; anything else keeps its bars."""
    if scalar.is_zero(value):
        return scalar.ZERO
    if value.denominator == ONE and any(atom.kind is Kind.IMAGINARY for atom in polynomial.atoms(value.numerator)):
        return _modulus(value, budget)
    if value.denominator == ONE and len(value.numerator) <= 1:
        for monomial, coefficient in value.numerator.items():
            if any(atom.kind not in _POSITIVE_KINDS for atom, _ in monomial):
                return _opaque("abs", _positive_lead(value, budget))
            return Scalar({monomial: polynomial.magnitude(coefficient)})
        return value
    return _opaque("abs", _positive_lead(value, budget))


def _modulus(value: Scalar, budget: Budget) -> Scalar:
    """|a + b*i| = sqrt(a^2 + b^2) for constants a and b that are real."""
    real: Polynomial = {}
    imaginary: Polynomial = {}
    for monomial, coefficient in value.numerator.items():
        rest = frozenset((atom, count) for atom, count in monomial if atom.kind is not Kind.IMAGINARY)
        if any(atom.kind not in _POSITIVE_KINDS for atom, _ in rest):
            return _opaque("abs", value)
        (real if rest == monomial else imaginary)[rest] = coefficient
    one, other = (polynomial.multiply(part, part, budget) for part in (real, imaginary))
    return _sqrt(Scalar(polynomial.add(one, other, budget)), budget)


def _choice(name: str, arguments: tuple[Scalar, ...]) -> Scalar:
    """Greatest or least of rational numbers, common divisor or multiple of integers."""
    numbers = [value for value in map(scalar.as_rational, arguments) if value is not None]
    is_known = numbers and len(numbers) == len(arguments)
    if not is_known or (name in ("gcd", "lcm") and any(value.denominator != 1 for value in numbers)):
        return _opaque(name, *arguments)
    return scalar.from_rational(_CHOICES[name](*numbers))


def _positive_lead(value: Scalar, budget: Budget) -> Scalar:
    """`value` or its negative, the same one for both."""
    keys = [sorted(map(repr, monomial)) for monomial in value.numerator]
    lead = min(range(len(keys)), key=keys.__getitem__)
    is_negative = list(value.numerator.values())[lead] < 0
    return scalar.negate(value, budget) if is_negative else value


def _floor(value: Scalar, _: Budget) -> Scalar:
    rational = scalar.as_rational(value)
    return _opaque("floor", value) if rational is None else scalar.from_rational(floor(rational))


def _ceil(value: Scalar, _: Budget) -> Scalar:
    rational = scalar.as_rational(value)
    return _opaque("ceil", value) if rational is None else scalar.from_rational(ceil(rational))


def _sin(value: Scalar, budget: Budget) -> Scalar:
    turns = turns_of(value)
    known = None if turns is None else sine_of_turns(turns, budget)
    return _opaque("sin", value) if known is None else Scalar(known)


def _cos(value: Scalar, budget: Budget) -> Scalar:
    turns = turns_of(value)
    known = None if turns is None else sine_of_turns(turns + _HALF, budget)
    return _opaque("cos", value) if known is None else Scalar(known)


def _tan(value: Scalar, budget: Budget) -> Scalar:
    return scalar.divide(_sin(value, budget), _cos(value, budget), budget)


def _reciprocal(function: Callable[[Scalar, Budget], Scalar]) -> Callable[[Scalar, Budget], Scalar]:
    return lambda value, budget: scalar.inverse(function(value, budget), budget)


def _arc(name: str, table: dict[object, Fraction]) -> Callable[[Scalar, Budget], Scalar]:
    def function(value: Scalar, budget: Budget) -> Scalar:
        if value.denominator != ONE:
            return _opaque(name, value)
        for sign in (1, -1):
            angle = table.get(polynomial.freeze(polynomial.scale(value.numerator, sign, budget)))
            if angle is not None:
                return Scalar(polynomial.scale(polynomial.of_atom(PI), sign * angle, budget))
        return _opaque(name, value)

    return function


def _arccos(value: Scalar, budget: Budget) -> Scalar:
    right_angle = Scalar(polynomial.scale(polynomial.of_atom(PI), _HALF, budget))
    return scalar.subtract(right_angle, _arc("arcsin", ARCSINES)(value, budget), budget)


def _opaque(name: str, *arguments: Scalar) -> Scalar:
    return Scalar(polynomial.of_atom(Atom(Kind.OPAQUE, (name, *map(key_of, arguments)))))


_POSITIVE_KINDS = (Kind.PRIME, Kind.CONSTANT, Kind.LOG)
_CHOICES: dict[str, Callable[..., Rational]] = {
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "gcd": lambda *values: gcd(*map(int, values)),
    "lcm": lambda *values: lcm(*map(int, values)),
}
_UNARY: dict[str, Callable[[Scalar, Budget], Scalar]] = {
    "sqrt": _sqrt,
    "cbrt": _cbrt,
    "factorial": _factorial,
    "ln": _ln,
    "lg": _log_10,
    "abs": _absolute,
    "floor": _floor,
    "ceil": _ceil,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "cot": _reciprocal(_tan),
    "sec": _reciprocal(_cos),
    "csc": _reciprocal(_sin),
    "arcsin": _arc("arcsin", ARCSINES),
    "arccos": _arccos,
    "arctan": _arc("arctan", ARCTANGENTS),
}
_BINARY: dict[str, Callable[[Scalar, Scalar, Budget], Scalar]] = {"binomial": _binomial, "log": _log}
