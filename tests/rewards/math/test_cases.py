"""The published pairs, each by its number, raw and in boxes, and in both directions where the rule is symmetric."""

import pytest

from farflung.rewards.math import grade_math

SYMMETRIC_PAIRS = [
    pytest.param(r"\frac{1}{2004!}", r"\frac{1}{2006!}", 0.0, id="case-1"),
    pytest.param(r"\frac{2^{2005}+1}{3\cdot2^{2006}}", r"\frac{1}{3\cdot2^{2006}}", 0.0, id="case-2"),
    pytest.param(r"1,2,\ldots,n", r"1,3,5,\ldots,2n-1", 0.0, id="case-3"),
    pytest.param("1331 and 1728", "1728", 0.0, id="case-4"),
    pytest.param("4", r"4\sqrt(2)", 0.0, id="case-5"),
    pytest.param(r"\pm 2021", "2021", 0.0, id="case-6"),
    pytest.param("e^{16}-1", "-1 + exp(16)", 1.0, id="case-7"),
    pytest.param(r"-2\pi", "-2*pi", 1.0, id="case-8"),
    pytest.param("(0,12.5)", "0<x<12.5", 1.0, id="case-9"),
    pytest.param("50", r"50\%", 0.0, id="case-10"),
    pytest.param(r"5\text{ cm}", r"5\text{ m}", 0.0, id="case-11"),
    pytest.param("0.1", "0.1000001", 0.0, id="case-12"),
    pytest.param("12345678901234567890", "12345678901234567891", 0.0, id="case-13"),
    pytest.param("(1,234)", "1234", 0.0, id="case-14"),
    pytest.param(r"\frac12", r"\frac{2}{4}", 1.0, id="case-16"),
    pytest.param("120", "5!", 1.0, id="case-17"),
    pytest.param(r"\{1,2\}", r"\{2,1\}", 1.0, id="case-18"),
    pytest.param("-1", "\u22121", 1.0, id="case-19"),
    pytest.param("½", "0.5", 1.0, id="case-20"),
    pytest.param(r"x\in(3,\infty)", "x>3", 1.0, id="case-21"),
    pytest.param("[1,2]", "(1,2)", 0.0, id="case-26"),
    pytest.param("(1,2)", "(2,1)", 0.0, id="case-27"),
    pytest.param("x>3", r"x\ge3", 0.0, id="case-28"),
    pytest.param("10{,}000", "10000", 1.0, id="case-29"),
    pytest.param(r"\$18.00", "18", 1.0, id="case-30"),
]
WRAPPERS = [
    pytest.param("{}", id="raw"),
    pytest.param("$ {} $", id="dollars"),
    pytest.param(r"\( {} \)", id="round"),
    pytest.param(r"\boxed{{{}}}", id="boxed"),
    pytest.param(r"$\fbox{{ {} }}$.", id="fbox"),
]
TOWER = r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)}-4\right)}-5}{16}"


@pytest.mark.parametrize("gold_wrapper", WRAPPERS)
@pytest.mark.parametrize("answer_wrapper", WRAPPERS)
@pytest.mark.parametrize(("gold", "answer", "verdict"), SYMMETRIC_PAIRS)
def test_a_published_pair_gets_its_verdict_in_any_wrapper_and_direction(
    gold: str, answer: str, verdict: float, gold_wrapper: str, answer_wrapper: str
) -> None:
    for reference, given in ((gold, answer), (answer, gold)):
        decision = grade_math(gold_wrapper.format(reference), answer_wrapper.format(given))
        assert (decision.verdict, decision.undecided) == (verdict, False), decision


@pytest.mark.parametrize("answer", ["", " ", r"\boxed{}", r"\boxed{ }", "$$", r"\fbox{}", "a</think>", "<think>7"])
@pytest.mark.parametrize("gold", ["", r"\boxed{}", "7", r"\emptyset", r"\frac{", r"\text{}", "0"])
def test_a_blank_answer_is_wrong_for_every_gold(gold: str, answer: str) -> None:  # cases 15 and 35
    decision = grade_math(gold, answer)
    assert (decision.verdict, decision.rule) == (0.0, "no_answer")


def test_a_box_without_braces_counts() -> None:  # case 22
    assert grade_math("2", r"\boxed 2").verdict == 1.0


def test_the_last_box_after_the_last_end_of_thinking_counts() -> None:  # case 23
    text = r"a</think> \boxed{1}</think> \boxed{2}"
    assert grade_math("2", text).verdict == 1.0
    assert grade_math("1", text).verdict == 0.0


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(
    "answer", ["9**9**9**9", "10**10**10", "99999999!", "(9**9**9)**2", "9^{9^{9^{9}}}", "((9!)!)!", TOWER]
)
@pytest.mark.parametrize("gold", ["0.3", "x", "16"])
def test_a_tower_is_wrong_at_once(gold: str, answer: str, wrapper: str) -> None:  # cases 24 and 25
    decision = grade_math(gold, wrapper.format(answer))
    assert (decision.verdict, decision.rule) == (0.0, "answer_over_limits")
    assert len(str(decision)) < 300


def test_several_numbers_in_prose_claim_none_of_them() -> None:  # case 32
    for gold in ("7", "12", "42"):
        assert grade_math(gold, "I think 7, 12 or 42").verdict == 0.0


def test_names_with_numbers_stay_distinct() -> None:  # case 36
    assert grade_math("x_{10} + x_1", "x1 + x10").verdict == 1.0
    assert grade_math("x_1", "x_{10}").verdict == 0.0


def test_python_code_is_text_and_never_run() -> None:  # case 38
    assert grade_math("5", "__import__('os').getpid()").verdict == 0.0
    assert grade_math("__import__('os').getpid()", "5").verdict is None


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x=1, y=2", "2, 1"),
        ("x=1, y=2", r"\{2,1\}"),
        ("a=3, b=4, c=5", "5, 4, 3"),
        ("1 2", "12"),
        ("2 3 5 7", "2357"),
        ("3 4 5", "345"),
        ("5 ms", "5 m"),
        ("5 Ns", "5 N"),
        ("7 Ws", "7 watts"),
        ("5 Mm", "5 mm"),
        ("5 Mg", "5 mg"),
        *[("5", f"5 {word}") for word in (
            "millions", "trillions", "hundreds", "dozens", "permille", "doubled", "halved", "factorials", "squares",
            "minusone", "incorrect", "impossible",
        )],
        ("(1,2)", "(y,x)=(1,2)"),
        ("(1,2)", "(b,a)=(1,2)"),
        ("5", r"\boxed{6 \fbox{5}}"),
        ("5", r"\boxed{1 or 2 or \boxed{5}}"),
        ("5", r"\boxed{5 \approx 6}"),
        ("5", r"5 \sim 100"),
    ],
)  # fmt: skip
def test_what_once_won_wrongly_wins_no_more(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict != 1.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x=1, y=2", "1, 2"), ("x=1, y=2", "y=2, x=1"), ("5", "5 apples"), ("5 cm", "5 centimeters"),
        ("3 h", "3 hours"),
        (r"\frac13", r"\frac13 \approx 0.33"), ("5", "5 people"), ("5 meters", "5 m"), ("1 2", "1  2"),
        ("(1,2)", "(x,y)=(1,2)"), ("12 km", "12 Kilometers"), ("5", r"\fbox{4} no: \boxed{5}"),
    ],
)  # fmt: skip
def test_what_is_right_stays_right_beside_it(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict == 1.0
