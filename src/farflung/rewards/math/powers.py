"""Roots and general powers of scalars, with the normal forms that `polynomial` can compare.

rational^(p/q)     through the prime factors: 12^(1/2) = 2 * 3^(1/2); (-8)^(1/3) = -2; (-4)^(1/2) = 2i
monomial^(p/q)     exponents multiply where that is sure: pi, e, one variable to an odd power
sum^(p/q)          its content is drawn out, the rest is a ROOT atom: sqrt(8+4*sqrt(3)) = 2*sqrt(2+sqrt(3))
b^(sum)            for rational b > 0 and e: 2^(3n+1) = 2 * (2^n)^3, 4^n = (2^n)^2, e^(k + ln 2) = 2 * e^k
(-1)^(sum)         n stands for an integer: (-1)^(n+2) = (-1)^n
"""

from fractions import Fraction
from math import gcd, isqrt

from farflung.rewards.math import polynomial, scalar
from farflung.rewards.math.angles import PI, sine_of_turns
from farflung.rewards.math.limits import Budget, NotExact, OverLimits, Undefined
from farflung.rewards.math.polynomial import ONE, UNIT, Atom, Kind, Monomial, Polynomial, Rational
from farflung.rewards.math.scalar import Scalar

E = Atom(Kind.CONSTANT, "e")
IMAGINARY = Atom(Kind.IMAGINARY, "i")

_MAX_TRIAL = 2_000
_SMALL_PRIMES = tuple(n for n in range(2, _MAX_TRIAL) if all(n % d for d in range(2, isqrt(n) + 1)))
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
_WITNESS_LIMIT = 3 * 10**23
"""Below it these witnesses decide primality (Sorenson and Webster 2015)."""
_MAX_ROOT_DEGREE = 100


def power(base: Scalar, exponent: Scalar, budget: Budget) -> Scalar:
    """`base ** exponent`; raises Undefined, OverLimits, or NotExact where there is no normal form."""
    whole = scalar.as_integer(exponent)
    if whole is not None:
        return scalar.integer_power(base, whole, budget)
    rational = scalar.as_rational(exponent)
    if rational is not None:
        assert isinstance(rational, Fraction)
        return rational_power(base, rational, budget)
    if exponent.denominator != ONE:
        return _opaque_power(base, exponent)
    return _symbolic_power(base, exponent.numerator, budget)


def rational_power(base: Scalar, exponent: Fraction, budget: Budget) -> Scalar:
    """`base ** exponent` for an exponent that is no integer: the real root where there is one, else the principal."""
    if exponent.denominator > _MAX_ROOT_DEGREE:
        raise OverLimits("root of too high a degree")
    if scalar.is_zero(base):
        if exponent < 0:
            raise Undefined("division by zero")
        return base
    if exponent < 0:
        return scalar.inverse(rational_power(base, -exponent, budget), budget)
    if base.denominator != ONE:  # the sign of the denominator is not known
        return _opaque_power(base, scalar.from_rational(exponent))
    if len(base.numerator) == 1:
        return _monomial_power(base.numerator, exponent, budget)
    content = _content(base.numerator)
    primitive = polynomial.scale(base.numerator, 1 / content, budget)
    rest = polynomial.reduced({Atom(Kind.ROOT, polynomial.freeze(primitive)): exponent}, 1, budget)
    return Scalar(polynomial.multiply(_positive_power(content, exponent, budget), rest, budget))


def prime_factors(number: int, budget: Budget) -> tuple[dict[int, int], int]:
    """Prime factors of `number` >= 1 with their counts, and a cofactor that could not be factored (1 if none)."""
    factors: dict[int, int] = {}
    budget.spend_bits(number.bit_length(), 20)
    for prime in _SMALL_PRIMES:
        if prime * prime > number:
            break
        while number % prime == 0:
            budget.spend(1 + number.bit_length() // 4096)
            factors[prime] = factors.get(prime, 0) + 1
            number //= prime
    if number == 1:
        return factors, 1
    if number < _MAX_TRIAL**2 or _is_prime(number):
        factors[number] = factors.get(number, 0) + 1
        return factors, 1
    root = isqrt(number)
    if root * root == number and _is_prime(root):
        factors[root] = 2
        return factors, 1
    return factors, number


def _is_prime(number: int) -> bool:
    """Miller-Rabin; False also for a number that is too large to decide."""
    if number >= _WITNESS_LIMIT:
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd //= 2
        twos += 1
    for witness in _WITNESSES:
        if witness % number == 0:
            continue
        value = pow(witness, odd, number)
        if value in (1, number - 1):
            continue
        if not any((value := value * value % number) == number - 1 for _ in range(twos - 1)):
            return False
    return True


def _monomial_power(base: Polynomial, exponent: Fraction, budget: Budget) -> Scalar:
    ((monomial, coefficient),) = base.items()
    is_real = exponent.denominator % 2 == 1
    outside: dict[Atom, Rational] = {}
    inside: dict[Atom, Rational] = {}
    for atom, count in monomial:
        is_outside = _is_positive(atom) or (
            atom.kind is Kind.VARIABLE
            and len(monomial) == 1
            and (is_real or count.numerator % 2 == 1)
            and coefficient > 0
        )
        (outside if is_outside else inside)[atom] = count
    result = _positive_power(polynomial.magnitude(coefficient), exponent, budget)
    if inside:
        sign = -1 if coefficient < 0 else 1
        root = Atom(Kind.ROOT, polynomial.freeze({frozenset(inside.items()): sign}))
        result = polynomial.multiply(result, polynomial.reduced({root: exponent}, 1, budget), budget)
    elif coefficient < 0:
        result = polynomial.multiply(result, _root_of_minus_one(exponent), budget)
    raised: dict[Atom, Rational] = {atom: count * exponent for atom, count in outside.items()}
    return Scalar(polynomial.multiply(result, polynomial.reduced(raised, 1, budget), budget))


def _root_of_minus_one(exponent: Fraction) -> Polynomial:
    if exponent.denominator % 2 == 1:
        return polynomial.constant(-1 if exponent.numerator % 2 else 1)
    if exponent.denominator == 2:
        return {frozenset([(IMAGINARY, 1)]): 1 if exponent.numerator % 4 == 1 else -1}
    raise NotExact("an even root of a negative number")


def _is_positive(atom: Atom) -> bool:
    return atom.kind in (Kind.PRIME, Kind.CONSTANT, Kind.POWER, Kind.LOG)


def _positive_power(value: Rational, exponent: Fraction, budget: Budget) -> Polynomial:
    """A positive rational to a rational power."""
    if value == 1:
        return ONE
    result = ONE
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        factors, cofactor = prime_factors(number, budget)
        exponents: dict[Atom, Rational] = {
            Atom(Kind.PRIME, prime): sign * count * exponent for prime, count in factors.items()
        }
        result = polynomial.multiply(result, polynomial.reduced(exponents, 1, budget), budget)
        if cofactor != 1:
            result = polynomial.multiply(result, _root_of_cofactor(cofactor, sign, exponent, budget), budget)
    return result


def _root_of_cofactor(cofactor: int, sign: int, exponent: Fraction, budget: Budget) -> Polynomial:
    if exponent.denominator == 2 and isqrt(cofactor) ** 2 == cofactor:
        return polynomial.constant(Fraction(isqrt(cofactor)) ** (sign * exponent.numerator))
    if sign < 0:
        raise NotExact("root of a number that cannot be factored")
    return polynomial.reduced({Atom(Kind.ROOT, polynomial.freeze({UNIT: cofactor})): exponent}, 1, budget)


def _content(terms: Polynomial) -> Fraction:
    numerator = denominator = 0
    for coefficient in terms.values():
        numerator = gcd(numerator, coefficient.numerator)
        denominator = (
            denominator * coefficient.denominator // gcd(denominator, coefficient.denominator)
            if denominator
            else coefficient.denominator
        )
    return Fraction(numerator, denominator)


def _symbolic_power(base: Scalar, exponent: Polynomial, budget: Budget) -> Scalar:
    value = scalar.as_rational(base)
    if value == -1:
        return _sign_power(base, exponent, budget)
    bases = _positive_bases(base, budget)
    if bases is None:
        return _opaque_power(base, Scalar(exponent))
    result = ONE
    for monomial, coefficient in exponent.items():
        for atom, count in bases.items():
            piece = _single_power(atom, count * coefficient, monomial, budget)
            result = polynomial.multiply(result, piece, budget)
    return Scalar(result)


def _positive_bases(base: Scalar, budget: Budget) -> dict[Atom, Rational] | None:
    """`base` as a product of powers of primes and constants; None if it is not one."""
    if base.denominator != ONE or len(base.numerator) != 1:
        return None
    ((monomial, coefficient),) = base.numerator.items()
    if coefficient <= 0 or any(atom.kind not in (Kind.PRIME, Kind.CONSTANT) for atom, _ in monomial):
        return None
    bases: dict[Atom, Rational] = dict(monomial)
    for number, sign in ((coefficient.numerator, 1), (coefficient.denominator, -1)):
        factors, cofactor = prime_factors(number, budget)
        if cofactor != 1:
            return None
        for prime, count in factors.items():
            atom = Atom(Kind.PRIME, prime)
            bases[atom] = bases.get(atom, 0) + sign * count
    return bases


def _single_power(base: Atom, coefficient: Rational, monomial: Monomial, budget: Budget) -> Polynomial:
    """`base ** (coefficient * monomial)`."""
    if monomial == UNIT:
        return polynomial.reduced({base: coefficient}, 1, budget)
    if base.kind is Kind.PRIME and len(monomial) == 2 and (Atom(Kind.LOG, base.key), -1) in monomial:
        rest = monomial - {(Atom(Kind.LOG, base.key), -1)}
        return _single_power(E, coefficient, rest, budget)  # b^(c / ln b) = e^c
    logarithm = next(iter(monomial))
    if base == E and len(monomial) == 1 and logarithm[0].kind is Kind.LOG and logarithm[1] == 1:
        return polynomial.reduced({Atom(Kind.PRIME, logarithm[0].key): coefficient}, 1, budget)
    if any(atom.kind is Kind.IMAGINARY for atom, _ in monomial):
        return _on_unit_circle(base, coefficient, monomial, budget)
    return polynomial.of_atom(Atom(Kind.POWER, (base, monomial)), coefficient)


def _on_unit_circle(base: Atom, turns: Rational, monomial: Monomial, budget: Budget) -> Polynomial:
    """e^(turns * pi * i) = cos(turns * pi) + i * sin(turns * pi)."""
    real = sine_of_turns(Fraction(turns) + Fraction(1, 2), budget)
    imaginary = sine_of_turns(Fraction(turns), budget)
    if base != E or monomial != frozenset([(PI, 1), (IMAGINARY, 1)]) or real is None or imaginary is None:
        raise NotExact("a complex exponent")
    turned = polynomial.multiply(imaginary, polynomial.of_atom(IMAGINARY), budget)
    return polynomial.add(real, turned, budget)


def _sign_power(base: Scalar, exponent: Polynomial, budget: Budget) -> Scalar:
    exponents: dict[Atom, Rational] = {}
    coefficient = 1
    for monomial, count in exponent.items():
        if count.denominator != 1 or any(atom.kind is not Kind.VARIABLE for atom, _ in monomial):
            return _opaque_power(base, Scalar(exponent))
        if monomial == UNIT:
            coefficient = -1 if count.numerator % 2 else 1
        else:
            exponents[Atom(Kind.SIGN, monomial)] = count
    return Scalar(polynomial.reduced(exponents, coefficient, budget))


def _opaque_power(base: Scalar, exponent: Scalar) -> Scalar:
    key = ("power", key_of(base), key_of(exponent))
    return Scalar(polynomial.of_atom(Atom(Kind.OPAQUE, key)))


def key_of(value: Scalar) -> tuple[object, object]:
    """The scalar as a key; equal keys are equal values."""
    return polynomial.freeze(value.numerator), polynomial.freeze(value.denominator)
