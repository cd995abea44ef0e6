r"""`grade_math`: is the answer the same mathematics as the reference?

The verdict is 1 where the rules prove it and 0 where they prove the opposite. Where they prove neither it is 0.0 with
`undecided`, so that a caller with further means may ask them, and a caller without keeps the safe verdict. An answer
that is blank is 0 for every reference; a reference that cannot be read is nobody's mistake but ours: None.

This package calls no algebra system, converts nothing to a float, and evaluates no foreign text as code. Its work is
bounded by `limits` for any text.
"""

import re

from farflung.rewards.decision import Decision
from farflung.rewards.exact import canonical_integer
from farflung.rewards.extract import final_answer, has_mark
from farflung.rewards.math import scalar
from farflung.rewards.math.compare import compare
from farflung.rewards.math.limits import MAX_CHARACTERS, Budget, NotExact, OverLimits, Undefined
from farflung.rewards.math.policy import DEFAULT_POLICY, MathPolicy
from farflung.rewards.math.reading import Failure, Reading, is_reduced, read
from farflung.rewards.math.spelling import normalize
from farflung.rewards.math.tokens import TokenKind, tokenize
from farflung.rewards.math.values import (
    Assigned,
    Collection,
    Equation,
    MatrixOf,
    Measured,
    RealSet,
    Sequence,
    Text,
    Value,
)

_KINDS: dict[type, str] = {
    Measured: "quantity",
    RealSet: "interval",
    Sequence: "tuple",
    MatrixOf: "matrix",
    Equation: "equation",
    Text: "text",
}
_THIN_SPACES = re.compile(r"\\[,!]|\s+")
OVER_LIMITS = "comparison_over_limits"
_BLANKS = str.maketrans("", "", "{}$ \t\r\n\\.,;:~")


def grade_math(gold: str, answer: str, policy: MathPolicy = DEFAULT_POLICY) -> Decision:
    r"""Grade an answer, or a completion that marks one, against a reference; see the module for what a verdict means.

    Either text may be bare, in math delimiters, or in `\boxed{}`. Never raises.
    """
    given = marked(answer)
    if _is_blank(given):
        return Decision(0.0, "no_answer")
    reference = marked(gold)
    if _is_blank(reference):
        return Decision(None, "gold_blank")
    integers = _grade_integers(reference, given, policy)
    if integers is not None:
        return integers
    expected = read(reference, mixed_numbers=policy.mixed_numbers)
    if expected.value is None:
        return _without_gold(expected, reference, given)
    found = read(given, mixed_numbers=policy.mixed_numbers)
    if found.value is None:
        return _without_answer(found, reference, given)
    decision = _grade_values(expected.value, found, policy)
    if decision.rule == OVER_LIMITS and normalize(reference) == normalize(given):
        return Decision(1.0, "same_text")  # too much to compare item by item, and word for word the same
    return decision


def marked(text: str) -> str:
    r"""The final answer of a text that marks one (`\boxed{}`, `</think>`, `####`, "answer is"), else the text."""
    return (final_answer(text) or "") if has_mark(text) else text.strip()


def _is_blank(text: str) -> bool:
    r"""Whether nothing is left without white space, delimiters and marks; `\{\}` is the empty set and no blank."""
    return r"\{" not in text and not text.translate(_BLANKS)


def _grade_integers(reference: str, given: str, policy: MathPolicy) -> Decision | None:
    """Integers of any size, as digits; None if these are not two integers or a tolerance applies."""
    if policy.absolute_tolerance or policy.relative_tolerance or policy.significant_figures:
        return None
    expected = canonical_integer(reference)
    found = None if expected is None else canonical_integer(given)
    if found is None:
        return None
    return Decision(1.0, "same_integer") if expected == found else Decision(0.0, "different_integer")


def _without_gold(expected: Reading, reference: str, given: str) -> Decision:
    if expected.failure is Failure.UNPARSEABLE and _is_same_text(reference, given, spaces=" "):
        return Decision(1.0, "same_text")
    is_open = expected.failure is Failure.UNPARSEABLE
    return Decision(None, f"gold_{expected.failure}", expected.detail, undecided=is_open)


def _without_answer(found: Reading, reference: str, given: str) -> Decision:
    if found.failure is not Failure.UNPARSEABLE or _is_same_text(reference, given):
        return Decision(0.0, f"answer_{found.failure}", found.detail)
    if _is_hedge(reference, given):
        return Decision(0.0, "several_numbers_in_prose")
    return Decision(0.0, "answer_unparseable", found.detail, undecided=True)


def _grade_values(expected: Value, found: Reading, policy: MathPolicy) -> Decision:
    assert found.value is not None
    assert found.tree is not None
    kind = _kind(expected)
    try:
        verdict = compare(expected, found.value, policy, Budget())
    except (OverLimits, NotExact, Undefined) as error:
        return Decision(0.0, OVER_LIMITS, str(error), undecided=True)
    if verdict is None:
        return Decision(0.0, f"undecided_{kind}", undecided=True)
    if verdict and not policy.unreduced_fractions and not is_reduced(found.tree):
        return Decision(0.0, "unreduced_fraction")
    return Decision(1.0, f"same_{kind}") if verdict else Decision(0.0, f"different_{kind}")


def _kind(value: Value) -> str:
    if isinstance(value, Assigned):
        return _kind(value.value)
    if isinstance(value, Collection):
        return "set" if value.is_set else "list"
    if isinstance(value, scalar.Scalar):
        return "number" if scalar.as_rational(value) is not None else "expression"
    return _KINDS.get(type(value), "value")


def _is_same_text(reference: str, given: str, spaces: str = "") -> bool:
    """Args:
    spaces: what white space counts as: a reference that cannot be read may mean something by it (`1 2`).
    """
    if max(len(reference), len(given)) > MAX_CHARACTERS:
        return False
    one, other = (_THIN_SPACES.sub(spaces, normalize(text)).strip() for text in (reference, given))
    return one == other


def _is_hedge(reference: str, given: str) -> bool:
    """The numbers of the reference between words and more numbers claim nothing: `I think 7, 12 or 42`."""
    try:
        expected, found = (tokenize(normalize(text)) for text in (reference, given))
    except (NotExact, OverLimits):
        return False
    if not any(token.kind is TokenKind.WORD for token in found):
        return False
    ours, theirs = ({token.text for token in tokens if token.kind is TokenKind.NUMBER} for tokens in (expected, found))
    return bool(ours) and ours < theirs
