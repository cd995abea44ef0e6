r"""Exact grading of mathematical answers; pure, without an algebra system.

    policy.py        what counts as equal where mathematics does not say
    grade.py         grade_math(gold, answer, policy) -> Decision
    reading.py       text -> value, or why there is none: the one place where the exceptions of the package end
    spelling.py      Unicode, LaTeX and plain forms -> one spelling
    tokens.py, cursor.py                     text -> tokens, with word_lists.py and units.py
    answers.py, expressions.py, factors.py, matrices.py, labels.py, unit_phrases.py      tokens -> tree (syntax.py)
    evaluate.py, arithmetic.py, relations.py, sets.py     tree -> value (values.py)
    scalar.py, polynomial.py, powers.py, functions.py, angles.py     exact numbers and expressions
    compare.py, different_kinds.py, letters.py, quantities.py, text_answers.py, units.py  value = value?
    limits.py        the bounds that hold for any text

A rule answers 1 only when it is sure and 0 only when it is sure; otherwise it says `undecided`.
"""

from farflung.rewards.math.grade import grade_math
from farflung.rewards.math.policy import DEFAULT_POLICY, MathPolicy, OrderPolicy, PercentPolicy, UnitPolicy

__all__ = ["DEFAULT_POLICY", "MathPolicy", "OrderPolicy", "PercentPolicy", "UnitPolicy", "grade_math"]
