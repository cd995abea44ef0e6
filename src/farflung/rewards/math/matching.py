"""Comparing several items at once, by a comparison of two that may not know: True, False or None."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Comparison = Callable[[Item, Item], bool | None]


def all_of(verdicts: list[bool | None]) -> bool | None:
    """Whether all are True; one False is enough for False."""
    if False in verdicts:
        return False
    return None if None in verdicts else True


def compare_in_order(gold: Sequence[Item], answer: Sequence[Item], compare: Comparison[Item]) -> bool | None:
    """Whether both have the same items in the same order."""
    if len(gold) != len(answer):
        return False
    return all_of([compare(one, other) for one, other in zip(gold, answer, strict=True)])


def compare_as_lists(gold: Sequence[Item], answer: Sequence[Item], compare: Comparison[Item]) -> bool | None:
    """Whether both have the same items equally often, in any order.

    Equal items are paired off first, which loses nothing since equality is transitive. An item that is sure to differ
    from all that is left on the other side decides.
    """
    if len(gold) != len(answer):
        return False
    left_over = list(answer)
    unpaired: list[Item] = []
    rest: list[list[bool | None]] = []
    for item in gold:
        verdicts = [compare(item, other) for other in left_over]
        if True in verdicts:
            partner = verdicts.index(True)
            left_over.pop(partner)
            for row in rest:
                row.pop(partner)
        else:
            unpaired.append(item)
            rest.append(verdicts)
    if not unpaired:
        return True
    columns = [[row[index] for row in rest] for index in range(len(left_over))]
    is_impossible = any(set(verdicts) == {False} for verdicts in (*rest, *columns))
    return False if is_impossible else None


def compare_as_sets(gold: Sequence[Item], answer: Sequence[Item], compare: Comparison[Item]) -> bool | None:
    """Whether every item of each side is equal to one of the other; how often does not count."""
    rows = [[compare(one, other) for other in answer] for one in gold]
    columns = [[row[index] for row in rows] for index in range(len(answer))]
    return all_of([_any_of(verdicts) for verdicts in (*rows, *columns)])


def _any_of(verdicts: list[bool | None]) -> bool | None:
    if True in verdicts:
        return True
    return None if None in verdicts else False
