"""A set of non-negative integers kept as ranges: a ledger of slots that stays small however many slots there were.

Slots are handed out in order and end in nearly that order, so the set has one range per gap, and gaps are slots that
are still out. Memory is proportional to those, not to the slots seen.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise


class RangeSet:
    """Disjoint half-open ranges `[start, stop)`, ascending, never adjacent.

    >>> slots = RangeSet([0, 1, 2, 5])
    >>> slots.pairs()
    [[0, 3], [5, 6]]
    >>> slots.first_gap, slots.run_start(5), slots.count_from(2), 4 in slots
    (3, 5, 2, False)
    """

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for value in values:
            self.add(value)

    @classmethod
    def from_pairs(cls, pairs: Sequence[Sequence[int]]) -> "RangeSet":
        """The inverse of `pairs`. Raises `ValueError` on anything that `pairs` would not give."""
        bounds = [bound for pair in pairs for bound in pair]
        ascending = all(low < high for low, high in pairwise(bounds))
        if any(len(pair) != 2 for pair in pairs) or not ascending or (bounds and bounds[0] < 0):
            raise ValueError(f"ranges {pairs[:4]}...: they must be [start, stop] pairs, ascending and apart")
        ranges = cls()
        ranges._starts, ranges._stops = bounds[::2], bounds[1::2]
        return ranges

    def add(self, value: int) -> bool:
        """False if it was a member already.

        Raises:
            ValueError: negative.
        """
        if value < 0:
            raise ValueError(f"{value} is negative: members are counted from 0")
        after = bisect_right(self._starts, value)
        if after and value < self._stops[after - 1]:
            return False
        joins_left = after > 0 and self._stops[after - 1] == value
        joins_right = after < len(self._starts) and self._starts[after] == value + 1
        if joins_left and joins_right:
            self._stops[after - 1] = self._stops.pop(after)
            del self._starts[after]
        elif joins_left:
            self._stops[after - 1] = value + 1
        elif joins_right:
            self._starts[after] = value
        else:
            self._starts.insert(after, value)
            self._stops.insert(after, value + 1)
        return True

    def remove(self, value: int) -> None:
        """Raises `KeyError` if it is no member."""
        at = self._range_of(value)
        start, stop = self._starts[at], self._stops[at]
        self._starts[at : at + 1] = [low for low, high in ((start, value), (value + 1, stop)) if low < high]
        self._stops[at : at + 1] = [high for low, high in ((start, value), (value + 1, stop)) if low < high]

    def remove_below(self, bound: int) -> None:
        """Forget every member smaller than `bound`."""
        gone = bisect_right(self._stops, bound)
        del self._starts[:gone], self._stops[:gone]
        if self._starts:
            self._starts[0] = max(self._starts[0], bound)

    def run_start(self, value: int) -> int:
        """First member of the unbroken run that ends in `value`. Raises `KeyError` if it is no member."""
        return self._starts[self._range_of(value)]

    def count_from(self, bound: int) -> int:
        """Members that are at least `bound`."""
        at = bisect_right(self._stops, bound)
        ranges = zip(self._starts[at:], self._stops[at:], strict=True)
        return sum(stop - max(start, bound) for start, stop in ranges)

    @property
    def first_gap(self) -> int:
        """The smallest integer that is no member."""
        return self._stops[0] if self._starts and self._starts[0] == 0 else 0

    def pairs(self) -> list[list[int]]:
        """`[start, stop]` of every range, plain data."""
        return [list(pair) for pair in zip(self._starts, self._stops, strict=True)]

    def __contains__(self, value: int) -> bool:
        after = bisect_right(self._starts, value)
        return after > 0 and value < self._stops[after - 1]

    def __len__(self) -> int:
        return sum(self._stops) - sum(self._starts)

    def _range_of(self, value: int) -> int:
        if value not in self:
            raise KeyError(value)
        return bisect_right(self._starts, value) - 1
