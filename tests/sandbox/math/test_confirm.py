"""What a "yes" of the algebra system must pass."""

import pytest

sympy = pytest.importorskip("sympy")

from farflung.sandbox.math.confirm import confirms  # noqa: E402 - it imports sympy
from farflung.sandbox.math.decimals import with_exact_decimals  # noqa: E402

x, y = sympy.symbols("x y", real=True)
ten = sympy.Integer(10)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (sympy.Rational(1, 2), sympy.Rational(2, 4)),
        (sympy.sqrt(8), 2 * sympy.sqrt(2)),
        (sympy.sin(2 * x), 2 * sympy.sin(x) * sympy.cos(x)),
        (sympy.factorial(x), x * sympy.factorial(x - 1)),
        (sympy.S.Zero, sympy.sin(x) ** 2 + sympy.cos(x) ** 2 - 1),
        (sympy.Gt(2 * x, 4), sympy.Lt(2, x)),
        (sympy.Eq(x, 2 * y), sympy.Eq(2 * x - 4 * y, 0)),
        (sympy.And(x > 1, x < 2), sympy.And(sympy.Gt(2, x), sympy.Lt(1, x))),
        (sympy.Interval.open(1, 2), sympy.And(x > 1, x < 2)),
        (sympy.FiniteSet(1, sympy.sqrt(8)), sympy.FiniteSet(2 * sympy.sqrt(2), 1)),
        (sympy.Tuple(1, sympy.sqrt(8)), sympy.Tuple(1, 2 * sympy.sqrt(2))),
        (sympy.Matrix([[1, sympy.sqrt(8)]]), sympy.Matrix([[1, 2 * sympy.sqrt(2)]])),
        (
            sympy.Union(sympy.Interval(0, 1), sympy.Interval(2, 3)),
            sympy.Union(sympy.Interval(2, 3), sympy.Interval(0, 1)),
        ),
        (sympy.Eq(x, 5), sympy.Integer(5)),
    ],
)
def test_the_same_thing_is_confirmed_both_ways(gold: object, answer: object) -> None:
    assert confirms(gold, answer)
    assert confirms(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (1 / sympy.factorial(2004), 1 / sympy.factorial(2006)),
        (sympy.exp(-100), sympy.exp(-101)),
        (1 + sympy.exp(-100), sympy.S.One),
        (sympy.exp(-100), sympy.S.Zero),
        (sympy.sin(ten**-30), ten**-30),
        (sympy.sqrt(ten**40 + 1), ten**20),
        (sympy.sin(x) + ten**-30, sympy.sin(x)),
        (x, y),
        (sympy.Gt(x, 4), sympy.Lt(x, 4)),
        (sympy.Gt(x, 4), sympy.Ge(x, 4)),
        (sympy.Gt(x, 4), sympy.Gt(x, 5)),
        (sympy.Eq(x, 2 * y), sympy.Eq(y, 2 * x)),
        (sympy.Eq(x**2, 4), sympy.Integer(4)),
        (sympy.And(x > 1, x < 2), sympy.Gt(x, 1)),
        (sympy.Or(x > 1, x < 2), sympy.And(x > 1, x < 2)),
        (sympy.Interval.open(1, 2), sympy.Interval(1, 2)),
        (sympy.Interval.open(2, 1), sympy.Interval.open(4, 3)),
        (sympy.FiniteSet(1, 2), sympy.FiniteSet(1)),
        (sympy.FiniteSet(1, 2), sympy.Tuple(1, 2)),
        (sympy.Tuple(1, 2), sympy.Tuple(2, 1)),
        (sympy.Matrix([[1, 2]]), sympy.Matrix([[1], [2]])),
        (sympy.FiniteSet(1), sympy.S.One),
        (sympy.nan, sympy.nan + 1),
    ],
)
def test_near_misses_and_other_kinds_are_not(gold: object, answer: object) -> None:
    assert not confirms(gold, answer)
    assert not confirms(answer, gold)


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("0.5", r"\frac{5}{10}"),
        (".5", r"\frac{5}{10}"),
        ("-12.30x", r"-\frac{1230}{100}x"),
        ("1,234.5", r"\frac{12345}{10}"),
        ("1{,}234.5", r"\frac{12345}{10}"),
        ("(0.5, 2)", r"(\frac{5}{10}, 2)"),
        ("0.0", r"\frac{0}{10}"),
        ("1.2.3", "1.2.3"),
        ("3.", "3."),
        ("x_1.5", "x_1.5"),
        ("12", "12"),
    ],
)
def test_decimals_become_fractions(text: str, exact: str) -> None:
    assert with_exact_decimals(text) == exact
