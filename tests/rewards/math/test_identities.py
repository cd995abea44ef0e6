"""Rational functions of two letters, written at random: two are the same where they are the same at every point.

The points are exact fractions, so that nothing here is rounded; by Schwartz and Zippel's lemma two functions of so low
a degree that agree at all of them are one function, but for a chance of about one in 10^9.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from farflung.rewards.math import grade_math

POINTS = tuple((Fraction(x), Fraction(y)) for x, y in ((100_003, 9_973), (-7_919, 104_729), (611_953, -1_299_709)))


@dataclass(frozen=True)
class Formula:
    """What is written, and its value at each point; None where it has none."""

    text: str
    values: tuple[Fraction | None, ...]


def joined(template: str, rule: Callable[..., Fraction], *parts: Formula) -> Formula:
    values = []
    for at_point in zip(*(part.values for part in parts), strict=True):
        try:
            known = [value for value in at_point if value is not None]
            values.append(rule(*known) if len(known) == len(parts) else None)
        except ZeroDivisionError:
            values.append(None)
    return Formula(template.format(*(part.text for part in parts)), tuple(values))


def number(value: int) -> Formula:
    return Formula(str(value), (Fraction(value),) * len(POINTS))


X = Formula("x", tuple(x for x, _ in POINTS))
Y = Formula("y", tuple(y for _, y in POINTS))
DECIMAL = Formula("0.25", (Fraction(1, 4),) * len(POINTS))
MIXED = Formula(r"(1\frac{2}{3})", (Fraction(5, 3),) * len(POINTS))

LEAVES = st.one_of(st.integers(0, 9).map(number), st.sampled_from([X, Y, DECIMAL, MIXED]))


def larger(smaller: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    return st.one_of(
        st.builds(lambda a, b: joined("({}+{})", lambda one, two: one + two, a, b), smaller, smaller),
        st.builds(lambda a, b: joined("({}-({}))", lambda one, two: one - two, a, b), smaller, smaller),
        st.builds(lambda a, b: joined(r"({})\cdot({})", lambda one, two: one * two, a, b), smaller, smaller),
        st.builds(lambda a, b: joined("({})({})", lambda one, two: one * two, a, b), smaller, smaller),
        st.builds(lambda a, b: joined(r"\frac{{{}}}{{{}}}", lambda one, two: one / two, a, b), smaller, smaller),
        st.builds(lambda a, b: joined("(({})/({}))", lambda one, two: one / two, a, b), smaller, smaller),
        st.builds(lambda a: joined("({})^2", lambda one: one**2, a), smaller),
        st.builds(lambda a: joined("({})^{{-1}}", lambda one: 1 / one, a), smaller),
        st.builds(lambda a: joined("(-({}))", lambda one: -one, a), smaller),
        st.builds(lambda a: joined(r"\sqrt[3]{{({})^3}}", lambda one: one, a), LEAVES),
    )


FORMULAS = st.recursive(LEAVES, larger, max_leaves=6)


def rewritten(formula: Formula, way: int) -> Formula:
    """The same function in other signs."""
    templates = ("({})+0", r"\frac{{{}}}{{1}}", "1({})", "({})({{1}})^2", "-(-({}))", r"2\cdot({})-({})", "5({})/5")
    template = templates[way % len(templates)]
    return Formula(template.format(formula.text, formula.text), formula.values)


SIGNS = {"+": "+", "-": "-", "*": "*", r"\cdot ": "*", r"\times ": "*", "/": "/", r"\div ": "/", "(": "*"}
"""A written sign -> what it means; `(` puts the next number in brackets."""


def in_a_row(first: int, rest: list[tuple[str, int]]) -> tuple[str, Fraction]:
    """Numbers and signs without more brackets than needed, and the value by the rule of precedence."""
    text = str(first)
    total, term = Fraction(0), Fraction(first)
    for sign, value in rest:
        text += f"({value})" if sign == "(" else f"{sign}{value}"
        if SIGNS[sign] == "*":
            term *= value
        elif SIGNS[sign] == "/":
            term /= value
        else:
            total, term = total + term, Fraction(value if SIGNS[sign] == "+" else -value)
    return text, total + term


@given(st.integers(1, 9), st.lists(st.tuples(st.sampled_from(sorted(SIGNS)), st.integers(1, 9)), max_size=5))
@settings(max_examples=400)
def test_numbers_in_a_row_have_the_value_that_precedence_gives(first: int, rest: list[tuple[str, int]]) -> None:
    text, value = in_a_row(first, rest)
    assert grade_math(f"{value.numerator}/{value.denominator}", text).verdict == 1.0, text


@given(FORMULAS, FORMULAS)
@settings(max_examples=300)
def test_two_formulas_are_the_same_where_they_are_the_same_at_every_point(one: Formula, other: Formula) -> None:
    assume(None not in one.values + other.values)
    decision = grade_math(one.text, other.text)
    assert decision.verdict == float(one.values == other.values), decision


@given(FORMULAS, st.integers(0, 6))
@settings(max_examples=200)
def test_a_formula_is_itself_in_other_signs(formula: Formula, way: int) -> None:
    assume(None not in formula.values)
    assert grade_math(formula.text, rewritten(formula, way).text).verdict == 1.0


@given(FORMULAS, st.sampled_from(["+1", "+x", r"\cdot 2+7", "^2+2"]))
@settings(max_examples=200)
def test_a_formula_is_not_a_near_one(formula: Formula, change: str) -> None:
    assume(None not in formula.values)
    decision = grade_math(formula.text, f"({formula.text}){change}")
    assert decision.verdict != 1.0 or (change == r"\cdot 2+7" and set(formula.values) == {Fraction(-7)})
