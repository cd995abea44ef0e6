"""Sets of real numbers: unions of intervals with scalar ends.

Order needs numbers, and only rational ends are ordered here. Two rays that face each other are joined without asking
(0 < x < pi is taken to be not empty). Sets with other ends are kept as written and compared end by end.
"""

from collections.abc import Iterable
from itertools import pairwise

from farflung.rewards.math import scalar
from farflung.rewards.math.limits import MAX_ITEMS, NotExact, OverLimits
from farflung.rewards.math.polynomial import Rational
from farflung.rewards.math.scalar import Scalar
from farflung.rewards.math.values import Bound, Infinite, Interval, RealSet

LOWEST = Infinite(-1)
HIGHEST = Infinite(1)
EVERYTHING = Interval(LOWEST, HIGHEST, is_low_closed=False, is_high_closed=False)

_Key = tuple[int, Rational]


def interval(low: Bound, high: Bound, *, is_low_closed: bool, is_high_closed: bool) -> Interval:
    """An interval; an infinite end is open however it was written."""
    return Interval(
        low,
        high,
        is_low_closed and not isinstance(low, Infinite),
        is_high_closed and not isinstance(high, Infinite),
    )


def point(value: Scalar) -> Interval:
    """The set of one number."""
    return Interval(value, value, is_low_closed=True, is_high_closed=True)


def below(value: Bound, *, is_closed: bool) -> Interval:
    """All numbers less than `value`, or at most it."""
    return interval(LOWEST, value, is_low_closed=False, is_high_closed=is_closed)


def above(value: Bound, *, is_closed: bool) -> Interval:
    """All numbers greater than `value`, or at least it."""
    return interval(value, HIGHEST, is_low_closed=is_closed, is_high_closed=False)


def union(sets: Iterable[RealSet]) -> RealSet:
    """Everything that is in one of them."""
    members = list(sets)
    intervals = tuple(part for member in members for part in member.intervals)
    if len(intervals) > MAX_ITEMS:
        raise OverLimits("too many intervals")
    return RealSet(canonical(intervals), _common_variable(members))


def intersection(left: RealSet, right: RealSet) -> RealSet:
    """Everything that is in both; raises NotExact where that needs an order of irrational ends."""
    pairs = len(left.intervals) * len(right.intervals)
    if pairs > MAX_ITEMS:
        raise OverLimits("too many intervals")
    met = [_meet(one, other) for one in left.intervals for other in right.intervals]
    return RealSet(canonical(part for part in met if part is not None), _common_variable([left, right]))


def complement(values: Iterable[Scalar]) -> RealSet:
    """All real numbers but these; raises NotExact unless one or all of them are rational."""
    points = list(values)
    if len(points) > MAX_ITEMS:
        raise OverLimits("too many intervals")
    if len(points) > 1:
        points = [scalar.from_rational(value) for value in sorted({_rational(value) for value in points})]
    ends: list[Bound] = [LOWEST, *points, HIGHEST]
    return RealSet(
        tuple(Interval(low, high, is_low_closed=False, is_high_closed=False) for low, high in pairwise(ends))
    )


def canonical(parts: Iterable[Interval]) -> tuple[Interval, ...]:
    """Disjoint intervals in order if all ends are rational, else the intervals as they are."""
    intervals = tuple(parts)
    if not all(is_rational(part) for part in intervals):
        return intervals
    merged: list[Interval] = []
    for part in sorted((part for part in intervals if not _is_empty(part)), key=_low_key):
        if merged and _touches(merged[-1], part):
            merged[-1] = _join(merged[-1], part)
        else:
            merged.append(part)
    return tuple(merged)


def is_rational(part: Interval) -> bool:
    """Whether both ends are rational or infinite."""
    return all(isinstance(end, Infinite) or scalar.as_rational(end) is not None for end in (part.low, part.high))


def _common_variable(sets: list[RealSet]) -> str | None:
    names = {member.variable for member in sets if member.variable is not None}
    if len(names) > 1:
        raise NotExact("conditions on several variables")
    return names.pop() if names else None


def _meet(one: Interval, other: Interval) -> Interval | None:
    for low, high in ((one, other), (other, one)):
        if isinstance(low.high, Infinite) and isinstance(high.low, Infinite):  # rays that face each other
            joined = Interval(low.low, high.high, low.is_low_closed, high.is_high_closed)
            return None if is_rational(joined) and _is_empty(joined) else joined
    lower = max(one, other, key=lambda part: (_key(part.low), not part.is_low_closed))
    upper = min(one, other, key=lambda part: (_key(part.high), part.is_high_closed))
    joined = Interval(lower.low, upper.high, lower.is_low_closed, upper.is_high_closed)
    return None if _is_empty(joined) else joined


def _is_empty(part: Interval) -> bool:
    low, high = _key(part.low), _key(part.high)
    return low > high or (low == high and not (part.is_low_closed and part.is_high_closed))


def _touches(left: Interval, right: Interval) -> bool:
    """Whether `right`, which does not start before `left`, leaves no gap after it."""
    low, high = _key(right.low), _key(left.high)
    return low < high or (low == high and (right.is_low_closed or left.is_high_closed))


def _join(left: Interval, right: Interval) -> Interval:
    upper = max(left, right, key=lambda part: (_key(part.high), part.is_high_closed))
    return Interval(left.low, upper.high, left.is_low_closed, upper.is_high_closed)


def _low_key(part: Interval) -> tuple[_Key, bool]:
    return _key(part.low), not part.is_low_closed


def _key(end: Bound) -> _Key:
    return (end.sign, 0) if isinstance(end, Infinite) else (0, _rational(end))


def _rational(value: Scalar) -> Rational:
    rational = scalar.as_rational(value)
    if rational is None:
        raise NotExact("an order of irrational numbers")
    return rational
