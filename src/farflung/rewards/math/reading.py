"""One text, read: its value, or the reason why it has none. This is where the exceptions of the package end."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import gcd

from farflung.rewards.math.answers import parse_answer
from farflung.rewards.math.arithmetic import parts
from farflung.rewards.math.evaluate import evaluate
from farflung.rewards.math.limits import MAX_CHARACTERS, Budget, CutShort, NotExact, OverLimits, Undefined
from farflung.rewards.math.spelling import has_balanced_braces
from farflung.rewards.math.syntax import Mixed, Node, Number, Quotient, Relation
from farflung.rewards.math.values import Value


class Failure(StrEnum):
    """Why a text has no value."""

    BROKEN = "broken"
    """Cut short: its brackets do not close, or an operand is missing at its end."""
    UNPARSEABLE = "unparseable"
    """Outside the grammar, or without an exact normal form."""
    UNDEFINED = "undefined"
    """A division by zero and the like."""
    OVER_LIMITS = "over_limits"
    """Too long, too deep, or too large a number."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text means; one of `value` and `failure` is None."""

    value: Value | None
    failure: Failure | None
    tree: Node | None = None
    detail: str = ""


def read(text: str, *, mixed_numbers: bool) -> Reading:
    """Read any text whatever; never raises."""
    if len(text) > MAX_CHARACTERS:
        return Reading(None, Failure.OVER_LIMITS, detail="too long")
    if not has_balanced_braces(text):
        return Reading(None, Failure.BROKEN, detail="braces do not close")
    try:
        tree = parse_answer(text)
        if not mixed_numbers and any(isinstance(part, Mixed) for part in _all_parts(tree)):
            return Reading(None, Failure.UNPARSEABLE, detail="a mixed number")
        return Reading(evaluate(tree, Budget()), None, tree)
    except CutShort as error:
        return Reading(None, Failure.BROKEN, detail=str(error))
    except NotExact as error:
        return Reading(None, Failure.UNPARSEABLE, detail=str(error))
    except Undefined as error:
        return Reading(None, Failure.UNDEFINED, detail=str(error))
    except OverLimits as error:
        return Reading(None, Failure.OVER_LIMITS, detail=str(error))


def is_reduced(tree: Node) -> bool:
    """Whether every fraction of two integers in it is in lowest terms and not over 1."""
    for part in _all_parts(tree):
        if isinstance(part, Quotient) and isinstance(part.numerator, Number) and isinstance(part.denominator, Number):
            top, bottom = Fraction(part.numerator.value), Fraction(part.denominator.value)
            is_whole = top.denominator == bottom.denominator == 1
            if is_whole and (bottom == 1 or gcd(top.numerator, bottom.numerator) != 1):
                return False
    return True


def _all_parts(tree: Node) -> Iterator[Node]:
    pending = [tree]
    while pending:
        node = pending.pop()
        for part in parts(node):
            yield part
            if isinstance(part, Relation):
                pending.extend(part.terms)
