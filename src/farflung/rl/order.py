"""In which order slots may be taken: whose turn it is, given which slots have been seen.

A slot is in turn when no missing slot before it is still waited for. A missing slot is waited for until `window_slots`
later ones have been admitted. Closed ones do not count, so that nobody moves the window with rejected work.

    slot      0 1 2 3 4 5 6         window_slots = 3
    seen      a a . a c a .         a admitted, c closed, . missing
              0 and 1 are in turn; 3 and 5 wait for 2, since only two later slots (3, 5) have been admitted
"""

from collections.abc import Iterable

from farflung.rl.ranges import RangeSet


class SlotOrder:
    """What has been seen of the sequence of slots, as ranges: as small as the number of gaps.

    >>> order = SlotOrder(window_slots=3)
    >>> for slot in (0, 1, 3, 5):
    ...     order.admit(slot)
    >>> order.close(4)
    >>> [order.is_in_turn(slot) for slot in (0, 1, 3, 5)]
    [True, True, False, False]
    >>> order.admit(7)
    >>> order.is_in_turn(3), order.is_in_turn(7), order.first_gap
    (True, False, 2)
    """

    def __init__(self, window_slots: int | None) -> None:
        self._window_slots = window_slots
        self._seen = RangeSet()
        self._closed = RangeSet()

    @classmethod
    def restore(cls, window_slots: int | None, seen: list[list[int]], closed: list[list[int]]) -> "SlotOrder":
        """From the ranges that `seen_without` and `closed` gave. Raises `ValueError` on broken ranges."""
        order = cls(window_slots)
        order._seen = RangeSet.from_pairs(seen)
        order._closed = RangeSet.from_pairs(closed)
        return order

    def admit(self, slot: int) -> None:
        self._seen.add(slot)

    def close(self, slot: int) -> None:
        self._seen.add(slot)
        self._closed.add(slot)

    def forget_below(self, slot: int) -> None:
        """Every earlier slot is in a final state: which of them were closed decides nothing any more."""
        self._closed.remove_below(slot)

    def is_in_turn(self, slot: int) -> bool:
        """Raises `KeyError` if the slot has not been seen."""
        run_start = self._seen.run_start(slot)
        if run_start == 0:
            return True
        if self._window_slots is None:
            return False
        # Of the missing slots before this one the last has the fewest after it, and it ends where the run starts.
        num_admitted_later = self._seen.count_from(run_start) - self._closed.count_from(run_start)
        return num_admitted_later >= self._window_slots

    @property
    def first_gap(self) -> int:
        """The first slot that has not been seen."""
        return self._seen.first_gap

    def seen_without(self, slots: Iterable[int]) -> list[list[int]]:
        """Ranges of what has been seen, as if `slots` had not. Raises `KeyError` if one of them has not."""
        seen = RangeSet.from_pairs(self._seen.pairs())
        for slot in slots:
            seen.remove(slot)
        return seen.pairs()

    @property
    def closed(self) -> list[list[int]]:
        """Ranges of the closed slots that still matter."""
        return self._closed.pairs()

    def __contains__(self, slot: int) -> bool:
        return slot in self._seen
