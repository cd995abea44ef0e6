"""What holds for any text: an answer is graded, in bounded work, and a reference equals itself."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from farflung.rewards.extract import final_answer
from farflung.rewards.math import MathPolicy, OrderPolicy, PercentPolicy, UnitPolicy, grade_math
from farflung.rewards.math.grade import marked
from farflung.rewards.math.limits import MAX_DEPTH, MAX_WORK, Budget, OverLimits
from farflung.rewards.math.reading import Failure, Reading, read

SIGNS = r"""
    \frac { } ( ) [ ] \{ \} 1 2 10 0. x y n ^ _ ! % \% \sqrt \pi e i \infty + - * / = < \le , ; \cup \in | \pm
    \text{ \binom \overline{3} : ' ½ ² √ \circ \langle \rangle \lfloor \rfloor \boxed{ $ \over \ldots sin ln & \\
    </think> <think> 5000! (x+y+z)^{90} 2^{60000} 1e4000 \begin{pmatrix} \end{pmatrix} \mathbb{R} per hour U
"""
PIECES = [*SIGNS.split(), " and ", " or ", r"\text{ cm}", "answer is ", "9" * 60]
FRAGMENTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
TEXTS = st.one_of(st.text(max_size=40), FRAGMENTS)

NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.decimals(-1000, 1000, places=3).map(str),
    st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
    st.integers(1, 500).map(lambda number: rf"\sqrt{{{number}}}"),
    st.sampled_from(
        [r"\pi", "e", "x", "x_1", "50\\%", r"5\text{ cm}", r"\infty", "2^{n}", r"\sin x", "3i", r"30^\circ"]
    ),
)
GOLDS = st.one_of(
    NUMBERS,
    st.lists(NUMBERS, min_size=2, max_size=4).map(", ".join),
    st.lists(NUMBERS, min_size=1, max_size=4).map(lambda items: rf"\{{{','.join(items)}\}}"),
    st.lists(NUMBERS, min_size=2, max_size=4).map(lambda items: f"({','.join(items)})"),
    st.tuples(NUMBERS, NUMBERS).map(lambda pair: f"{pair[0]} + {pair[1]}"),
    st.tuples(NUMBERS, NUMBERS).map(lambda pair: rf"x = {pair[0]} \pm {pair[1]}"),
    st.tuples(NUMBERS, NUMBERS).map(lambda pair: rf"\begin{{pmatrix}}{pair[0]}&{pair[1]}\end{{pmatrix}}"),
    st.integers(-99, 99).map(lambda end: rf"x \le {end}"),
    st.sampled_from([r"\text{Monday}", "yes", "no solution", "A", "(B)", r"\emptyset", "3:4", "1011_2", "y=2x+1"]),
)
POLICIES = st.builds(
    MathPolicy,
    percent=st.sampled_from(PercentPolicy),
    units=st.sampled_from(UnitPolicy),
    bare_lists=st.sampled_from(OrderPolicy),
    unreduced_fractions=st.just(True),
    mixed_numbers=st.booleans(),
    text_case=st.booleans(),
    drop_left_side=st.booleans(),
    intervals_as_inequalities=st.booleans(),
)


@given(TEXTS, TEXTS, POLICIES)
@settings(max_examples=200)
def test_any_two_texts_are_graded(gold: str, answer: str, policy: MathPolicy) -> None:
    decision = grade_math(gold, answer, policy)
    assert decision.verdict in (0.0, 1.0, None)
    assert not (decision.undecided and decision.verdict == 1.0)


@given(TEXTS, TEXTS)
@settings(max_examples=200)
def test_the_order_of_the_two_does_not_matter_where_both_can_be_read(gold: str, answer: str) -> None:
    there, back = grade_math(gold, answer), grade_math(answer, gold)
    readings = [read(marked(text), mixed_numbers=True) for text in (gold, answer)]
    if all(reading.value is not None for reading in readings):
        assert (there.verdict, there.undecided) == (back.verdict, back.undecided)


@given(GOLDS, GOLDS)
@settings(max_examples=200)
def test_the_order_of_two_answers_does_not_matter(gold: str, answer: str) -> None:
    assume(all(read(text, mixed_numbers=True).value is not None for text in (gold, answer)))
    there, back = grade_math(gold, answer), grade_math(answer, gold)
    assert (there.verdict, there.undecided) == (back.verdict, back.undecided)


@given(GOLDS, POLICIES)
@settings(max_examples=200)
def test_a_reference_equals_itself_under_every_policy(gold: str, policy: MathPolicy) -> None:
    assert grade_math(gold, gold, policy).verdict == 1.0
    assert grade_math(gold, rf"\boxed{{{gold}}}", policy).verdict == 1.0


@given(TEXTS)
@settings(max_examples=200)
def test_whatever_can_be_read_equals_itself(text: str) -> None:
    if read(marked(text), mixed_numbers=True).value is not None and marked(text).strip("{}$ \t\r\n\\.,;:~"):
        assert grade_math(text, text).verdict == 1.0


@given(TEXTS, st.sampled_from(["", "  ", r"\boxed{}", "$ $", "<think>5", "{}"]))
def test_a_blank_answer_is_wrong_for_every_reference(gold: str, blank: str) -> None:
    assert grade_math(gold, blank).verdict == 0.0


@given(st.integers(), st.integers())
def test_integers_are_equal_where_they_are_equal(gold: int, answer: int) -> None:
    assert grade_math(str(gold), str(answer)).verdict == float(gold == answer)
    assert grade_math(str(gold), f"{gold:,}").verdict == 1.0


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_fractions_are_equal_where_they_are_equal(gold: object, answer: object) -> None:
    assert grade_math(str(gold), str(answer)).verdict == float(gold == answer)


@given(st.lists(st.sampled_from([*PIECES, "7", r"\boxed{7}", "#### 7\n"]), max_size=20).map("".join))
@settings(max_examples=200)
def test_an_extracted_answer_is_a_piece_of_the_text_after_thinking(text: str) -> None:
    found = final_answer(text)
    assert found is None or (found == found.strip() and found in text.rpartition("</think>")[2])


@given(st.text(max_size=60), st.text(alphabet="ab12{}\\ ", max_size=20))
def test_a_box_at_the_end_is_found_whatever_stands_before_it(before: str, inner: str) -> None:
    if inner.replace(r"\\", "").count("\\") == 0 and _is_balanced(inner):
        found = final_answer(rf"{before}</think>\boxed{{{inner}}}")
        assert found == (inner.strip() or None)


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text.replace(r"\\", ""):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


HUGE = {
    "nested fractions": r"\frac{1}{" * 10_000 + "1" + "}" * 10_000,
    "nested fractions of few characters": r"\frac1{" * 400 + "1" + "}" * 400,
    "nested brackets": "(" * 1900 + "1" + ")" * 1900,
    "nested absolute values": "|1+" * 600 + "1" + "|" * 600,
    "sum of factorials": "+".join(["5000!"] * 500),
    "product of factorials": "*".join(["4999!"] * 300),
    "sum of reciprocals of factorials": "+".join(f"1/{n}!" for n in range(1000, 1200)),
    "power of a sum": "(a+b+c+d)^{100}",
    "many powers of a sum": "(a+b+c)^{16}" * 100,
    "large coefficients": r"(2^{3000}a+3^{2000}b+5^{1000}c)^{14}",
    "power of a nested root": r"(\sqrt{1+\sqrt{1+\sqrt{x}}})^{99}",
    "product of roots": "".join(rf"(1+\sqrt{{{n}}})" for n in range(2, 100)),
    "root of a large number": rf"\sqrt{{{'9' * 1500}7}}",
    "power of a factorial": "5000!^i",
    "logarithm of a factorial": r"\ln(5000!)",
    "many denominators": "+".join(f"1/(x+{n})" for n in range(150)),
    "list of roots": ",".join(rf"\sqrt{{{n}+x}}" for n in range(190)),
    "many conditions": " and ".join(f"x!={n}" for n in range(190)),
    "many plus-minus signs": r"\pm1" * 400,
    "tower": "2^" * 700 + "2",
    "factorials": "5" + "!" * 1000,
    "decimal exponent": "1e999999999",
    "thousands": "1,234" * 700,
    "megabyte of a sum": "1+" * 500_000 + "1",
    "megabyte of braces": "{" * 1_000_000,
    "megabyte of boxes": r"\boxed{" * 150_000 + "}" * 150_000,
    "megabyte of marks": "answer is " * 100_000,
    "megabyte of spaces": "answer" + " " * 1_000_000 + "is 5",
    "megabyte of thoughts": "<think>" * 150_000,
    "megabyte of text": r"\text{" * 160_000,
    "megabyte of dollars": "$" * 1_000_000,
    "superscripts": "²" * 3900,
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE.keys())
def test_no_text_costs_more_than_the_limits_allow(text: str) -> None:
    for gold, answer in (("16", text), (text, "16"), (text, text)):
        assert grade_math(gold, answer).verdict in (0.0, 1.0, None)
    assert grade_math("16", text).verdict == 0.0
    assert grade_math(text, "16").verdict != 1.0


def test_a_megabyte_of_digits_is_compared_as_digits() -> None:
    digits = "7" * 1_000_000
    assert grade_math(digits, digits).verdict == 1.0
    assert grade_math(digits, digits[:-1] + "8").verdict == 0.0


def test_the_deepest_text_that_is_read_fits_the_stack() -> None:
    depth = next(depth for depth in range(1, MAX_DEPTH) if _nested(depth + 1).failure is Failure.OVER_LIMITS)
    assert depth >= 12  # a continued fraction of a dozen steps is a real answer
    assert _nested(depth).value is not None


def _nested(depth: int) -> Reading:
    return read(r"1+\frac{1}{" * depth + "2" + "}" * depth, mixed_numbers=True)


def test_a_budget_ends() -> None:
    budget = Budget()
    budget.spend(MAX_WORK)
    with pytest.raises(OverLimits):
        budget.spend()
