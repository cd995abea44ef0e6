r"""Is a "yes" of the algebra system true? Structure member by member, values to many digits at fixed points.

    values       both rational: equal. Otherwise |a - b| <= 10^(100-digits) max(|a|, |b|), to 1,000 digits, and to 200
                 at three points of the free symbols, if any; zero only if the other side is known to be zero
    sets, lists  as many members, each matched by one of its own; tuples and matrices in order
    intervals    the same ends, open and closed alike; unions part by part
    relations    the same sign after turning; sides in a constant ratio, positive where the sign has a direction

The measure is relative, so that 1/2004! is not 1/2006!. Whatever is none of these is not confirmed; an empty set
neither, since the library also makes one of the pair (2, 1). Schwartz and Zippel's lemma is why points suffice for
polynomials; for other functions agreement to 100 digits at three points is taken for truth. Runs inside a child, under
its limits: evaluating may never end.
"""

from collections.abc import Callable, Sequence
from typing import Any

import sympy
from sympy.core.relational import Relational

DIGITS = 1_000
"""Of a constant: enough for sqrt(10^40 + 1) beside 10^20; some milliseconds."""
DIGITS_AT_POINTS = 200
"""Of a function of symbols, where the factorial of a fraction would cost seconds at more."""
SLACK_DIGITS = 100
"""What rounding inside an expression may cost."""
POINTS = tuple(
    tuple(sympy.Rational(*pair) for pair in row)
    for row in (
        ((1301, 997), (823, 1009), (2003, 911), (577, 1013)),
        ((611, 953), (1999, 1021), (739, 1087), (1511, 863)),
        ((1777, 1031), (967, 1063), (1213, 887), (2111, 1103)),
    )
)
"""Three assignments to up to four symbols: positive, so that roots and logarithms are defined; no round ratios."""
MAX_MEMBERS = 64
"""Members of a set, or relations of a chain, that are matched in any order."""

_TURNED = {sympy.Gt: sympy.Lt, sympy.Ge: sympy.Le}


def confirms(gold: Any, answer: Any) -> bool:
    """Whether two foreign objects are the same thing. May raise MemoryError and nothing else."""
    try:
        return _same(gold, answer)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - what the algebra system cannot compare is not confirmed
        return False


def _same(gold: Any, answer: Any) -> bool:
    gold, answer = _without_name(gold, answer), _without_name(answer, gold)
    if _is_relation(gold) and _is_relation(answer):
        return _same_relations(_parts(gold), _parts(answer))
    if _is_relation(gold) and isinstance(answer, sympy.Set):
        return _same_sets(gold.as_set(), answer)
    if _is_relation(answer) and isinstance(gold, sympy.Set):
        return _same_sets(gold, answer.as_set())
    if isinstance(gold, sympy.Tuple) and isinstance(answer, sympy.Tuple):
        return _same_in_order(gold.args, answer.args)
    if isinstance(gold, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase):
        return gold.shape == answer.shape and _same_in_order(gold.flat(), answer.flat())
    if isinstance(gold, sympy.Set) and isinstance(answer, sympy.Set):
        return _same_sets(gold, answer)
    if isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr):
        return _same_values(_of_two_sides(gold).doit(), _of_two_sides(answer).doit())
    return False


def _of_two_sides(value: Any) -> Any:
    """Limits must exist from both sides: the library takes every limit from the right. Another raises ValueError."""
    return value.replace(sympy.Limit, lambda term, symbol, at, _: sympy.Limit(term, symbol, at, "+-"))


def _without_name(this: Any, other: Any) -> Any:
    """`5` of `x = 5` where the other side has no name."""
    if isinstance(this, sympy.Eq) and not _is_relation(other) and isinstance(this.lhs, sympy.Symbol):
        return this.rhs
    return this


def _is_relation(thing: Any) -> bool:
    return isinstance(thing, (Relational, sympy.And, sympy.Or))


def _parts(relation: Any) -> tuple[type, Sequence[Any]]:
    """The relations of a chain or of alternatives, and what joins them."""
    if isinstance(relation, (sympy.And, sympy.Or)):
        return relation.func, relation.args
    return sympy.And, (relation,)


def _same_relations(gold: tuple[type, Sequence[Any]], answer: tuple[type, Sequence[Any]]) -> bool:
    return gold[0] is answer[0] and _same_in_any_order(gold[1], answer[1], _same_relation)


def _same_relation(gold: Any, answer: Any) -> bool:
    """`2x - 4 > 0` and `2 < x`: the ratio of (left - right) is one number at every point."""
    sign, difference = _turned(gold)
    other_sign, other_difference = _turned(answer)
    if sign is not other_sign:
        return False
    ratios = [one / two for one, two in _values(difference, other_difference) if two != 0]
    if len(ratios) < len(POINTS) or any(not _close(ratio, ratios[0]) for ratio in ratios):
        return False
    has_direction = sign in (sympy.Lt, sympy.Le)
    return ratios[0].is_positive is True if has_direction else ratios[0] != 0


def _turned(relation: Any) -> tuple[type, Any]:
    """With `<` for `>`."""
    turned = _TURNED.get(relation.func)
    if turned is None:
        return relation.func, relation.lhs - relation.rhs
    return turned, relation.rhs - relation.lhs


def _same_sets(gold: Any, answer: Any) -> bool:
    if isinstance(gold, sympy.FiniteSet) and isinstance(answer, sympy.FiniteSet):
        return _same_in_any_order(gold.args, answer.args, _same)
    if isinstance(gold, sympy.Interval) and isinstance(answer, sympy.Interval):
        openness = (gold.left_open, gold.right_open) == (answer.left_open, answer.right_open)
        return bool(openness) and _same_in_order((gold.start, gold.end), (answer.start, answer.end))
    if isinstance(gold, sympy.Union) and isinstance(answer, sympy.Union):
        return _same_in_any_order(gold.args, answer.args, _same_sets)
    return bool(gold == answer) and gold is not sympy.EmptySet


def _same_in_order(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    return len(gold) == len(answer) and all(_same(one, two) for one, two in zip(gold, answer, strict=True))


def _same_in_any_order(gold: Sequence[Any], answer: Sequence[Any], same: Callable[[Any, Any], bool]) -> bool:
    """Each member of one takes a member of the other that is left; equality is transitive, so the first will do."""
    left = list(answer)
    if len(gold) != len(left) or len(left) > MAX_MEMBERS:
        return False
    for member in gold:
        match = next((index for index, candidate in enumerate(left) if same(member, candidate)), None)
        if match is None:
            return False
        del left[match]
    return True


def _same_values(gold: Any, answer: Any) -> bool:
    if gold.is_Rational and answer.is_Rational:
        return bool(gold == answer)
    if gold == answer:
        return not gold.has(sympy.nan, sympy.zoo)
    if gold.is_zero or answer.is_zero:
        return sympy.simplify(gold - answer).is_zero is True
    pairs = _values(gold, answer)
    digits = DIGITS_AT_POINTS if gold.free_symbols | answer.free_symbols else DIGITS
    return len(pairs) == len(POINTS) and all(_close(one, two, digits) for one, two in pairs)


def _values(gold: Any, answer: Any) -> list[tuple[Any, Any]]:
    """Both to many digits at each point where both are finite numbers; constants once for each point."""
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=lambda symbol: symbol.name)
    if len(symbols) > len(POINTS[0]):
        return []
    digits = DIGITS_AT_POINTS if symbols else DIGITS
    pairs = []
    for point in POINTS if symbols else POINTS[:1]:
        at = dict(zip(symbols, point, strict=False))
        one, two = (side.subs(at).evalf(digits, maxn=2 * digits) for side in (gold, answer))
        if one.is_number and two.is_number and one.is_finite and two.is_finite:
            pairs.append((one, two))
    return pairs if symbols else pairs * len(POINTS)


def _close(one: Any, two: Any, digits: int = DIGITS_AT_POINTS) -> bool:
    tolerance = sympy.Rational(1, 10 ** (digits - SLACK_DIGITS))
    return bool(abs(one - two) <= tolerance * max(abs(one), abs(two)))
