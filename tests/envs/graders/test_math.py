"""Exact rules, then the second opinion: what each may decide, and the cases of public reports, bare and boxed."""

from collections.abc import Iterator

import pytest

from farflung.envs.graders.math import MathGrader
from farflung.envs.graders.math_options import MathOptions
from farflung.envs.graders.registry import build_grader, grader_spec
from farflung.envs.graders.unfit import unfit
from farflung.errors import UserError
from farflung.rewards.decision import Decision
from farflung.rewards.math.policy import DEFAULT_POLICY
from farflung.sandbox.math.pool import MathPool

pytest.importorskip("math_verify")

TOWER = r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)}-4\right)}-5}{16}"
CASES = {
    1: (r"\frac{1}{2004!}", r"\frac{1}{2006!}", 0.0),
    2: (r"\frac{2^{2005}+1}{3\cdot2^{2006}}", r"\frac{1}{3\cdot2^{2006}}", 0.0),
    3: (r"1,2,\ldots,n", r"1,3,5,\ldots,2n-1", 0.0),
    4: ("1331 and 1728", "1728", 0.0),
    5: ("4", r"4\sqrt(2)", 0.0),
    6: (r"\pm 2021", "2021", 0.0),
    7: ("e^{16}-1", "-1 + exp(16)", 1.0),
    8: (r"-2\pi", "-2*pi", 1.0),
    9: ("(0,12.5)", "0<x<12.5", 1.0),
    10: ("50", r"50\%", 0.0),
    11: (r"5\text{ cm}", r"5\text{ m}", 0.0),
    12: ("0.1", "0.1000001", 0.0),
    13: ("12345678901234567890", "12345678901234567891", 0.0),
    14: ("(1,234)", "1234", 0.0),
    16: (r"\frac12", r"\frac{2}{4}", 1.0),
    17: ("120", "5!", 1.0),
    18: (r"\{1,2\}", r"\{2,1\}", 1.0),
    19: ("-1", "\u22121", 1.0),
    20: ("\u00bd", "0.5", 1.0),
    21: (r"x\in(3,\infty)", "x>3", 1.0),
    26: ("[1,2]", "(1,2)", 0.0),
    27: ("(1,2)", "(2,1)", 0.0),
    28: ("x>3", r"x\ge3", 0.0),
    29: ("10{,}000", "10000", 1.0),
    30: (r"\$18.00", "18", 1.0),
}
"""By number; 15, 22 and 23 are about boxes, below."""


@pytest.fixture(scope="module")
def grader() -> Iterator[MathGrader]:
    with MathPool() as pool:
        yield MathGrader(DEFAULT_POLICY, pool)


class ScriptedPool(MathPool):
    """Answers everything alike and keeps what it was asked."""

    def __init__(self, decision: Decision) -> None:
        super().__init__()
        self.decision = decision
        self.questions: list[tuple[str, str]] = []

    def ask(self, gold: str, answer: str) -> Decision:
        self.questions.append((gold, answer))
        return self.decision


YES = Decision(1.0, "second_opinion_equal")


@pytest.mark.parametrize("number", CASES)
@pytest.mark.parametrize("form", ["{}", r"\boxed{{{}}}"], ids=["bare", "boxed"])
def test_case(grader: MathGrader, number: int, form: str) -> None:
    gold, answer, verdict = CASES[number]
    assert grader.grade_answer(form.format(gold), form.format(answer)).verdict == verdict


@pytest.mark.parametrize("answer", ["9**9**9**9", "10**10**10", "99999999!", "(9**9**9)**2"])
@pytest.mark.parametrize("gold", ["0.3", "x"])
def test_case_24_an_expression_that_never_ends_is_wrong(grader: MathGrader, gold: str, answer: str) -> None:
    assert grader.grade_answer(gold, answer).verdict == 0.0


def test_case_25_the_tower_is_wrong(grader: MathGrader) -> None:
    assert grader.grade_answer("16", TOWER).verdict == 0.0


@pytest.mark.parametrize("gold", ["42", "", r"\emptyset", "x", r"\text{no}"])
def test_case_15_and_35_an_empty_answer_is_wrong_whatever_the_gold(grader: MathGrader, gold: str) -> None:
    for empty in ("", "  ", r"\boxed{}", "$$"):
        assert grader.grade_answer(gold, empty).verdict == 0.0
        assert grader.grade(gold, empty).verdict == 0.0


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        (r"so it is \boxed 2", 1.0),  # case 22
        (r"a</think> \boxed{1}</think> \boxed{2}", 1.0),  # case 23
        ("I think 7, 12 or 2", 0.0),  # case 32
        (r"<think>\boxed{2}", 0.0),
        ("#### 2", 1.0),
        ("__import__('os').getpid()", 0.0),  # case 38
        (r"\boxed{__import__('os').getpid()}", 0.0),  # case 38
    ],
)
def test_a_completion_is_graded_by_its_marked_answer(grader: MathGrader, completion: str, verdict: float) -> None:
    assert grader.grade("2", completion).verdict == verdict


@pytest.mark.parametrize("gold", [r"\frac{", "", r"\sqrt{", ")("])
def test_a_gold_that_cannot_be_read_gives_no_verdict(grader: MathGrader, gold: str) -> None:
    assert grader.grade_answer(gold, "1").verdict is None


def test_the_second_opinion_never_turns_a_no_into_a_yes() -> None:
    pool = ScriptedPool(YES)
    for gold, answer, verdict in CASES.values():
        if verdict == 0.0:
            assert MathGrader(pool=pool).grade_answer(gold, answer).verdict == 0.0
    assert pool.questions == []


def test_the_second_opinion_decides_what_the_rules_leave_open() -> None:
    pool = ScriptedPool(YES)
    assert MathGrader(pool=pool).grade_answer(r"\boxed{\sin(2x)}", r"\boxed{2\sin x\cos x}") == YES
    assert MathGrader(pool=pool).grade_answer(r"$\sin(2x)$", r"\(2\sin x\cos x\)") == YES
    assert pool.questions == [(r"\sin(2x)", r"2\sin x\cos x")] * 2
    alone = MathGrader().grade_answer(r"\sin(2x)", r"2\sin x\cos x")
    assert (alone.verdict, alone.undecided) == (0.0, True)


def test_a_failed_sandbox_is_no_verdict() -> None:
    failed = Decision(None, "sandbox_failed")
    assert MathGrader(pool=ScriptedPool(failed)).grade_answer(r"\sin(2x)", r"2\sin x\cos x") == failed


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (r"\sin x \text{ cm}", "words"),
        ("sinus x", "words"),
        (r"\sin 3\%", "percent"),
        (r"\sin 30^\circ", "degrees"),
        (r"\$\sin 3", "currency"),
        (r"1,2,\ldots", "dots"),
        (r"\sin 101_2", "base"),
        (r"\sin 1:2", "ratio"),
        (r"\sin 1 2", "spaced_digits"),
        (r"\frac112", "short_fraction"),
        (r"\sin{x", "unbalanced"),
        (r"\sin x}", "unbalanced"),
        (r"\sin x +", "cut_off"),
        ("sin(__x__)", "foreign_character"),
        (r"\sin \"x\"", "foreign_character"),
        ("a+b+c+d+f", "too_many_variables"),
        (r"\gcd(a, b)", "unknown_command"),
        (r"\frac{\partial f}{\partial x}", "unknown_command"),
        (r"\nabla f", "unknown_command"),
        (r"\sin\angle A", "unknown_command"),
        ("f'(2)", "prime"),
        ("(n!)! + n!!", "double_factorial"),
        ("f^{(2)}(f)", "derivative"),
        (r"\frac{dy}{dx}", "derivative"),
        (r"\frac{d}{dx} \sin x", "derivative"),
        ("A^T", "transpose"),
        ("A^{T}+1", "transpose"),
        (r"\sin AB", "adjacent_capitals"),
        ("A^a", "letter_case"),
        (r"\sin\theta + \Theta", "letter_case"),
        ("f(-x)", "call"),
        ("P(A+B)", "call"),
        ("E[X^2]", "call"),
        (r"\sin x/2", "slash_after_function"),
        ("sin x/2", "slash_after_function"),
        (r"\frac{1}{\infty}", "infinity"),
        (r"\infty+1", "infinity"),
        ("2024-01-02", "date"),
        ("1/2/2024", "date"),
        ("0x10", "literal"),
        ("5th", "ordinal"),
        ("x = x", "identity"),
        ("[x]", "brackets"),
        ("[x, 1]", None),
        ("x = x^2", None),
        ("f^{-1}(x)", "inverse"),
        (r"\sin^{-1}(x) + x", None),
        (r"\sin(A\times B)", "cross_product"),
        ("xy1", "digit_after_letter"),
        ("3x 4y", "digit_after_letter"),
        (r"\sin 2 + x_1 + x^2", None),
        ("n p(1-p)", None),
        (r"\sin(x)/2", None),
        (r"(-\infty, \sin 1]", None),
        (r"\sum_{n=1}^{\infty} x^n", None),
        (r"\int_0^\infty x dx", None),
        (r"\int_0^2 3x dx", None),
        (r"\int_0^12 3x dx", "spaced_digits"),
        (r"\sin(2x)+\pi", None),
        (r"\begin{pmatrix} \sin x & 1 \\ 2 & 3 \end{pmatrix}", None),
        (r"\sin x \text{ or } \cos x", None),
        (r"\{\sin x, \sqrt{2}\}", None),
    ],
)
def test_texts_that_are_known_to_be_misread_are_not_asked_about(text: str, rule: str | None) -> None:
    assert unfit(text, "1") == rule
    assert unfit("1", text) == rule


@pytest.mark.parametrize(
    ("gold", "answer", "rule"),
    [
        (r"\sin A", r"\sin a", "letter_case"),
        (r"\sin\gamma", r"\sin\Gamma", "letter_case"),
        ("h(a+b)", "h(b+a)", "call"),
        ("h(a+b)", "(b+a)h", None),
    ],
)
def test_two_texts_may_be_unfit_together(gold: str, answer: str, rule: str | None) -> None:
    assert unfit(gold, answer) == rule
    assert unfit(answer, gold) == rule


def test_a_limit_of_two_sides_is_not_that_of_one(grader: MathGrader) -> None:
    assert grader.grade_answer(r"\infty", r"\lim_{x\to0}\frac1x").verdict == 0.0
    assert grader.grade_answer("1", r"\lim_{x\to0}\frac{|x|}{x}").verdict == 0.0
    assert grader.grade_answer("1", r"\lim_{x\to0}\frac{\sin x}{x}").verdict == 1.0


def test_options_reach_the_rules() -> None:
    spec = grader_spec("math-exact@1", {"percent": "ignore", "absolute_tolerance": 0.01})
    grader = build_grader(spec)
    assert grader.grade("50", r"\boxed{50\%}").verdict == 1.0
    assert grader.grade("3.14", r"\boxed{3.15}").verdict == 1.0
    assert grader.grade("3.14", r"\boxed{3.151}").verdict == 0.0
    assert MathOptions().policy() == DEFAULT_POLICY


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(UserError, match="percnt"):
        build_grader(grader_spec("math@1", {"percnt": "ignore"}))
