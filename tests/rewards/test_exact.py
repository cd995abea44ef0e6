import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rewards.exact import MINUS_SIGNS, THOUSANDS_SEPARATORS, canonical_integer, grade_integer, grade_text


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("-1", "\u22121"),
        ("7", "+007"),
        ("0", "-0"),
        ("10000", "10{,}000"),
        ("10{,}000", "10000"),
        ("1234567", "1,234,567"),
        ("-1234", "\u20131,234"),
        ("1000000", r"1\,000\,000"),
        ("1234", "1\u202f234"),
        ("42", " 42\n"),
        ("9" * 10_000, "0" + "9" * 10_000),
    ],
)
def test_ways_to_write_an_integer_are_equal(reference: str, answer: str) -> None:
    assert grade_integer(reference, answer) == 1.0


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("12345678901234567890", "12345678901234567891"),
        ("9" * 10_000, "9" * 9_999 + "8"),
        ("1234", "(1,234)"),
        ("12", "1,2"),
        ("1234", "12,34"),
        ("1234567", "1,234567"),
        ("1234567", "1,234{,}567"),
        ("12", "1 2"),
        ("1", "--1"),
        ("1", "-1"),
        ("50", "50%"),
        ("42", "7, 12 or 42"),
        ("100", "1e2"),
        ("16", "0x10"),
        ("123", "١٢٣"),
        ("2", "²"),
        ("5", ""),
        ("0", ""),
        ("0", "-"),
    ],
)
def test_what_is_not_the_same_integer_scores_0(reference: str, answer: str) -> None:
    assert grade_integer(reference, answer) == 0.0


@pytest.mark.parametrize("reference", ["", " ", "x", "1.5", "1,2"])
def test_a_reference_that_is_no_integer_cannot_be_graded_against(reference: str) -> None:
    assert grade_integer(reference, reference) is None


@given(st.integers(), st.sampled_from(MINUS_SIGNS), st.sampled_from(["", *THOUSANDS_SEPARATORS]), st.integers(0, 3))
def test_every_form_of_an_integer_is_read_back(value: int, minus: str, separator: str, num_zeros: int) -> None:
    digits = f"{abs(value):,}".replace(",", separator) if separator else "0" * num_zeros + str(abs(value))
    assert canonical_integer((minus if value < 0 else "") + digits) == str(value)


@given(st.text(), st.text())
def test_grading_never_raises_and_is_symmetric_where_both_can_be_graded(one: str, other: str) -> None:
    for grade in (grade_integer, grade_text):
        forth, back = grade(one, other), grade(other, one)
        if forth is not None and back is not None:
            assert forth == back
        assert grade(one, "") in (0.0, None)


@pytest.mark.parametrize(
    ("reference", "answer", "grade"),
    [
        ("abc", "abc", 1.0),
        ("abc", "  abc\n", 1.0),
        ("é", "e\u0301", 1.0),
        ("abc", "ABC", 0.0),
        ("abc", "abc.", 0.0),
        ("abc", "", 0.0),
        ("a b", "a  b", 0.0),
        ("", "", None),
        ("", "x", None),
    ],
)
def test_texts_are_equal_up_to_composition_and_outer_white_space(
    reference: str, answer: str, grade: float | None
) -> None:
    assert grade_text(reference, answer) == grade
