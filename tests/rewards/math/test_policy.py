"""Each parameter of the policy, with a pair that it decides."""

from fractions import Fraction

import pytest

from farflung.rewards.math import DEFAULT_POLICY, MathPolicy, OrderPolicy, PercentPolicy, UnitPolicy, grade_math

VALUE = MathPolicy(percent=PercentPolicy.VALUE)
DISTINCT = MathPolicy(percent=PercentPolicy.DISTINCT)
IGNORE = MathPolicy(percent=PercentPolicy.IGNORE)


@pytest.mark.parametrize(
    ("gold", "answer", "policy", "verdict"),
    [
        (r"50\%", "0.5", VALUE, 1.0),
        (r"50\%", "50", VALUE, 0.0),
        (r"50\%", "0.5", DISTINCT, 0.0),
        (r"50\%", "50", DISTINCT, 0.0),
        (r"50\%", "50 percent", DISTINCT, 1.0),
        (r"50\%", "50", IGNORE, 1.0),
        (r"50\%", "0.5", IGNORE, 0.0),
        (r"5\text{ cm}", "5", MathPolicy(units=UnitPolicy.OPTIONAL), 1.0),
        (r"5\text{ cm}", "5", MathPolicy(units=UnitPolicy.REQUIRED), 0.0),
        (r"5\text{ cm}", "0.05 m", MathPolicy(units=UnitPolicy.REQUIRED), 1.0),
        (r"5\text{ cm}", r"0.05\text{ m}", MathPolicy(units=UnitPolicy.REQUIRED), 1.0),
        (r"5\text{ cm}", r"5\text{ m}", MathPolicy(units=UnitPolicy.IGNORE), 1.0),
        ("1, 2", "2, 1", MathPolicy(bare_lists=OrderPolicy.FREE), 1.0),
        ("1, 2", r"\{1, 2\}", MathPolicy(bare_lists=OrderPolicy.FREE), 1.0),
        ("1, 2", "2, 1", MathPolicy(bare_lists=OrderPolicy.FIXED), 0.0),
        ("1, 2", "1, 2", MathPolicy(bare_lists=OrderPolicy.FIXED), 1.0),
        ("1, 2", r"\{1, 2\}", MathPolicy(bare_lists=OrderPolicy.FIXED), 0.0),
        ("3.14", "3.141", MathPolicy(absolute_tolerance=Fraction(1, 100)), 1.0),
        ("3.14", "3.141", MathPolicy(absolute_tolerance=Fraction(1, 10_000)), 0.0),
        ("-200", "-199", MathPolicy(relative_tolerance=Fraction(1, 100)), 1.0),
        ("-200", "199", MathPolicy(relative_tolerance=Fraction(1, 100)), 0.0),
        ("0", "0.001", MathPolicy(relative_tolerance=Fraction(1, 2)), 0.0),
        ("1, 2", "2, 1.001", MathPolicy(absolute_tolerance=Fraction(1, 100)), 1.0),
        ("1234.5", "1.23E+3", MathPolicy(significant_figures=3), 1.0),  # case 37
        ("1234.5", "1.24E+3", MathPolicy(significant_figures=3), 0.0),
        ("0", "0.0", MathPolicy(significant_figures=3), 1.0),  # case 37
        ("0", "1e-30", MathPolicy(significant_figures=3), 0.0),
        ("1234.5", "1.23E+3", DEFAULT_POLICY, 0.0),
        (r"\frac12", r"\frac24", MathPolicy(unreduced_fractions=True), 1.0),
        (r"\frac12", r"\frac24", MathPolicy(unreduced_fractions=False), 0.0),
        (r"\frac12", "0.5", MathPolicy(unreduced_fractions=False), 1.0),
        ("x=2", r"x=\frac21", MathPolicy(unreduced_fractions=False), 0.0),
        (r"1\frac12", "1.5", MathPolicy(mixed_numbers=True), 1.0),
        ("1.5", r"1\frac12", MathPolicy(mixed_numbers=False), None),
        (r"\text{Yes}", "yes", MathPolicy(text_case=False), 1.0),
        (r"\text{Yes}", "yes", MathPolicy(text_case=True), 0.0),
        ("5", "x=5", MathPolicy(drop_left_side=True), 1.0),
        ("5", "x=5", MathPolicy(drop_left_side=False), 0.0),
        ("x=5", "5=x", MathPolicy(drop_left_side=False), 1.0),
        ("(3, 4)", "3<x<4", MathPolicy(intervals_as_inequalities=True), 1.0),
        ("(3, 4)", "3<x<4", MathPolicy(intervals_as_inequalities=False), 0.0),
    ],
)
def test_a_choice_of_the_policy_decides(gold: str, answer: str, policy: MathPolicy, verdict: float | None) -> None:
    """None stands for undecided."""
    decision = grade_math(gold, answer, policy)
    assert (None if decision.undecided else decision.verdict) == verdict, decision


@pytest.mark.parametrize(
    "arguments",
    [{"absolute_tolerance": Fraction(-1)}, {"relative_tolerance": Fraction(-1)}, {"significant_figures": 0}],
)
def test_a_policy_without_meaning_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"tolerance|significant_figures"):
        MathPolicy(**arguments)
