"""Formulas of a few characters: what parses, what it is worth, and what is no formula."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rewards.small_formula import MAX_DEPTH, parse_formula


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("2+3*4", 14),
        ("(2+3)*4", 20),
        ("8-3-2", 3),
        ("2*3*4", 24),
        ("((5))", 5),
        ("x*x+1", 26),
        ("1-(2-3)", 2),
        ("007", 7),
    ],
)
def test_it_is_worth_what_arithmetic_says(text: str, value: int) -> None:
    formula = parse_formula(text)
    assert formula is not None
    assert formula.at(5) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "1+",
        "*2",
        "(1",
        "1)",
        "()",
        "1 + 2",
        "2x",
        "x x",
        "1/2",
        "2**3",
        "1e3",
        "²",
        "٣",
        "1" * 7,
        "1+" * 40 + "1",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert parse_formula(text) is None


def test_depth_is_bounded() -> None:
    assert parse_formula("(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH) is not None
    assert parse_formula("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1)) is None


def test_numbers_are_told_as_they_are_written() -> None:
    formula = parse_formula("(3+5)*12-3")
    assert formula is not None
    assert formula.numbers == (3, 5, 12, 3)


@given(st.text(alphabet="0123456789x+-*()", max_size=70))
def test_it_never_raises_and_agrees_with_python(text: str) -> None:
    formula = parse_formula(text)
    if formula is not None:
        plain = text.replace("x", "(3)")
        digits = __import__("re").sub(r"\d+", lambda found: str(int(found[0])), plain)
        assert formula.at(3) == eval(digits)


@given(st.text(max_size=100))
def test_no_text_raises(text: str) -> None:
    parse_formula(text)
