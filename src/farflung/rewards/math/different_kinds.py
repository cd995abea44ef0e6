"""Values of different kinds: most pairs are sure to differ, some depend on what was asked.

{5} and 5    3:4 and 3/4    101_2 and 101    i + 2j and (1, 2)    \\text{(B)} and B     open, or a matter of letters
5 and (5, 6)    \\mathbb{Z} and 5    yes and 5                                          sure to differ
"""

from farflung.rewards.math import scalar
from farflung.rewards.math.letters import variable_name
from farflung.rewards.math.matching import Comparison, compare_in_order
from farflung.rewards.math.polynomial import Kind
from farflung.rewards.math.scalar import Scalar
from farflung.rewards.math.text_answers import choice_letter
from farflung.rewards.math.values import (
    Assigned,
    Collection,
    Congruence,
    Equation,
    MatrixOf,
    Measured,
    NumberSet,
    Numeral,
    Proportion,
    Sequence,
    Text,
    Value,
)

NUMBERS = (Scalar, Measured)
_SINGLE = (Scalar, Measured, Sequence)

_REFUSALS = frozenset(
    ("no solution", "no solutions", "none", "does not exist", "dne", "undefined", "yes", "no", "true", "false")
)
_BASIS_LETTERS = frozenset("jk")


def compare_kinds(gold: Value, answer: Value, compare: Comparison[Value]) -> bool | None:
    """Whether two values of different kinds are the same; None where that depends on what was asked."""
    if isinstance(gold, Text) or isinstance(answer, Text):
        return _compare_with_text(gold, answer)
    if has_open_signs(gold) or has_open_signs(answer) or has_domain(gold) or has_domain(answer):
        return None
    if _is_in_braces(gold, answer) or _is_in_braces(answer, gold):
        return None
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, Sequence) and isinstance(other, MatrixOf) and isinstance(one.items[0], Sequence):
            return None  # [[1, 2], [3, 4]]
        if isinstance(one, Sequence) and isinstance(other, Collection) and _are_coordinates(other):
            values = tuple(item.value for item in other.items if isinstance(item, Assigned))
            return compare_in_order(one.items, values, compare) or None
        if isinstance(one, Sequence) and isinstance(other, Collection | MatrixOf):
            return None if _may_be_tuple(other) else False
        if isinstance(one, Sequence) and isinstance(other, Scalar) and one.items == (other,) and variable_name(other):
            return None  # [B] and B
        if isinstance(one, Sequence | MatrixOf) and isinstance(other, Scalar) and _may_be_vector(other):
            return None
        if isinstance(one, Numeral | Proportion) and isinstance(other, Scalar):
            return None  # 101_2 and 101, 3:4 and 3/4
        if isinstance(one, MatrixOf) and one.is_determinant and isinstance(other, Scalar):
            return None
        if isinstance(one, Congruence) and isinstance(other, Scalar | Collection):
            return None  # x = 4 modulo 9 and 4
        if isinstance(one, Equation) and isinstance(other, Scalar):
            return None  # x + y = 5 and 5
        if isinstance(one, NumberSet) and isinstance(other, Scalar | Measured | Sequence):
            return False
        if isinstance(one, NumberSet):
            return None
    return False


def _is_in_braces(one: Value, other: Value) -> bool:
    """`{5}` and 5."""
    return isinstance(one, Collection) and one.is_set and len(one.items) == 1 and isinstance(other, _SINGLE)


def has_open_signs(value: Value) -> bool:
    r"""Whether it is a tuple with a `\pm` inside, which may stand for several tuples."""
    return isinstance(value, Sequence) and any(isinstance(item, Collection) and not item.is_set for item in value.items)


def has_domain(value: Value) -> bool:
    """Whether it is a list that says what its letters range over: `k pi, k in Z`."""
    return isinstance(value, Collection) and any(domain_of(item) is not None for item in value.items)


def domain_of(value: Value) -> tuple[str, NumberSet] | None:
    """Letter and set of `k in Z`, None for another value."""
    if isinstance(value, Assigned) and isinstance(value.value, NumberSet) and len(value.names) == 1:
        return value.names[0], value.value
    return None


def _may_be_tuple(value: Collection | MatrixOf) -> bool:
    """A bare list of numbers, or a matrix of one row or column."""
    if isinstance(value, Collection):
        return not value.is_set and all(isinstance(item, NUMBERS) for item in value.items)
    return 1 in (len(value.rows), len(value.rows[0]))


def _may_be_vector(value: Scalar) -> bool:
    """A sum over unit vectors: `2i + 3j`, with hats or without, where a lone i is read as imaginary."""
    names = scalar.variables(value)
    return bool(names & _BASIS_LETTERS) or any(" " in name for name in names) or _is_imaginary(value)


def _is_imaginary(value: Scalar) -> bool:
    return any(atom.kind is Kind.IMAGINARY for monomial in value.numerator for atom, _ in monomial)


def _are_coordinates(values: Collection) -> bool:
    """`x = 1, y = 2`: each name once, in the order of the alphabet, which is that of a tuple."""
    names = [item.names for item in values.items if isinstance(item, Assigned)]
    return len(names) == len(values.items) and len(set(names)) == len(names) and names == sorted(names)


def _compare_with_text(gold: Value, answer: Value) -> bool | None:
    """Words beside something else: a letter of a multiple choice may be either, and T may be short for true."""
    letters = []
    for value in (gold, answer):
        name = variable_name(value) if isinstance(value, Scalar) else None
        words = value.words if isinstance(value, Text) else name
        letters.append(None if words is None else choice_letter(words))
    if None not in letters:
        return letters[0] == letters[1]
    text, other = (gold, answer) if isinstance(gold, Text) else (answer, gold)
    is_refusal = isinstance(text, Text) and text.words.lower() in _REFUSALS
    if isinstance(text, Text) and isinstance(other, Scalar):
        name = variable_name(other)
        if name is not None and name.lower() == text.words[:1].lower():
            return None
    return False if is_refusal and isinstance(other, Scalar | Measured | Sequence) else None
