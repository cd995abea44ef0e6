"""Whether two numbers are equal, with what the policy says about tolerance, percent and units."""

from fractions import Fraction
from math import floor

from farflung.rewards.math import scalar
from farflung.rewards.math.limits import Budget
from farflung.rewards.math.policy import MathPolicy, PercentPolicy, UnitPolicy
from farflung.rewards.math.polynomial import ONE, Kind, Rational, magnitude
from farflung.rewards.math.scalar import Scalar
from farflung.rewards.math.units import (
    canonical_unit,
    canonical_word,
    in_base_units,
    is_unit_word,
    may_measure_the_same,
)
from farflung.rewards.math.values import Measured

PERCENT = "%"
_ODD_UNITS = ("rad", "lb", "oz", "K", "V", "mol")
"""Known units that are converted by no factor of the table."""


def compare_scalars(gold: Scalar, answer: Scalar, policy: MathPolicy, budget: Budget) -> bool | None:
    """Whether two scalars are equal, within the tolerance if both are rational."""
    if gold == answer:
        return True
    one, other = scalar.as_rational(gold), scalar.as_rational(answer)
    if one is not None and other is not None:
        return _compare_rationals(one, other, policy)
    difference = scalar.subtract(gold, answer, budget)
    if scalar.is_zero(difference):
        return True
    return False if scalar.is_proven(difference) else None


def compare_measured(
    gold: Scalar | Measured, answer: Scalar | Measured, policy: MathPolicy, budget: Budget
) -> bool | None:
    """Whether two numbers of which at least one has a unit are equal."""
    one, one_unit = _split(_with_letter_unit(gold, answer), policy)
    other, other_unit = _split(_with_letter_unit(answer, gold), policy)
    if PERCENT in (one_unit, other_unit) and one_unit != other_unit:
        return False
    if policy.units is UnitPolicy.IGNORE:
        one_unit = other_unit = ""
    if one_unit == other_unit:
        return compare_scalars(one, other, policy, budget)
    if not (one_unit and other_unit):
        return _compare_one_sided(one, other, one_unit or other_unit, policy, budget)
    one_base, other_base = in_base_units(one_unit), in_base_units(other_unit)
    if one_base is None or other_base is None:
        is_equal = compare_scalars(one, other, policy, budget)
        return False if is_equal is False and one_unit not in _ODD_UNITS and other_unit not in _ODD_UNITS else None
    if one_base[1] != other_base[1]:
        return None if may_measure_the_same(one_base[1], other_base[1]) else False
    return compare_scalars(
        scalar.multiply(one, scalar.from_rational(one_base[0]), budget),
        scalar.multiply(other, scalar.from_rational(other_base[0]), budget),
        policy,
        budget,
    )


def _compare_one_sided(one: Scalar, other: Scalar, unit: str, policy: MathPolicy, budget: Budget) -> bool | None:
    """A unit on one side only."""
    verdict = compare_scalars(one, other, policy, budget)
    if policy.units is UnitPolicy.REQUIRED:
        return False
    return None if unit == "deg" and verdict is False and _may_be_radians(one, other) else verdict


def _may_be_radians(one: Scalar, other: Scalar) -> bool:
    return (scalar.as_rational(one) is None) != (scalar.as_rational(other) is None)


def _with_letter_unit(value: Scalar | Measured, beside: Scalar | Measured) -> Scalar | Measured:
    """`5 m/s` in plain text is five times m/s; beside a quantity such variables are read as the unit."""
    if not (isinstance(value, Scalar) and isinstance(beside, Measured)) or beside.unit == PERCENT:
        return value
    if value.denominator != ONE or len(value.numerator) != 1:
        return value
    ((monomial, coefficient),) = value.numerator.items()
    units = frozenset(
        (atom, count)
        for atom, count in monomial
        if atom.kind is Kind.VARIABLE
        and isinstance(count, int)
        and (str(atom.key) == beside.unit or is_unit_word(str(atom.key)))
    )
    if not units:
        return value
    powers: dict[str, int] = {}
    for atom, count in units:
        name = canonical_word(str(atom.key))
        powers[name] = powers.get(name, 0) + int(count)
    return Measured(Scalar({monomial - units: coefficient}), canonical_unit(powers))


def _split(value: Scalar | Measured, policy: MathPolicy) -> tuple[Scalar, str]:
    if isinstance(value, Scalar):
        return value, ""
    if value.unit != PERCENT or policy.percent is PercentPolicy.DISTINCT:
        return value.number, value.unit
    if policy.percent is PercentPolicy.IGNORE:
        return value.number, ""
    hundredth = scalar.from_rational(Fraction(1, 100))
    return scalar.multiply(value.number, hundredth, Budget()), ""


def _compare_rationals(gold: Rational, answer: Rational, policy: MathPolicy) -> bool:
    if policy.significant_figures is not None:
        gold = rounded(gold, policy.significant_figures)
        answer = rounded(answer, policy.significant_figures)
    if gold == answer:
        return True
    distance = magnitude(gold - answer)
    return distance <= policy.absolute_tolerance or distance <= policy.relative_tolerance * magnitude(gold)


def rounded(value: Rational, num_figures: int) -> Rational:
    """`value` with `num_figures` significant figures, halves away from zero; 0 stays 0."""
    if value == 0:
        return 0
    exponent = _decimal_exponent(Fraction(magnitude(value)))
    unit = Fraction(10) ** (exponent - num_figures + 1)
    steps = floor(magnitude(value) / unit + Fraction(1, 2))
    return steps * unit if value > 0 else -steps * unit


def _decimal_exponent(value: Fraction) -> int:
    """The largest k with 10^k <= value."""
    bits = value.numerator.bit_length() - value.denominator.bit_length()
    estimate = bits * 30103 // 100000 - 1
    while Fraction(10) ** (estimate + 1) <= value:
        estimate += 1
    while Fraction(10) ** estimate > value:
        estimate -= 1
    return estimate
