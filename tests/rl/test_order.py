import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl import order, ranges
from farflung.rl.order import SlotOrder


def test_the_examples_in_the_docstrings_run() -> None:
    for module in (order, ranges):
        results = doctest.testmod(module)
        assert results.failed == 0
        assert results.attempted > 0


@given(st.dictionaries(st.integers(0, 14), st.booleans(), min_size=1), st.one_of(st.none(), st.integers(0, 5)))
def test_a_slot_is_in_turn_when_every_missing_one_before_it_has_waited_long_enough(
    is_admitted: dict[int, bool], window: int | None
) -> None:
    slots = SlotOrder(window)
    for slot, admitted in is_admitted.items():
        if admitted:
            slots.admit(slot)
        else:
            slots.close(slot)
    for slot in is_admitted:
        missing = [gap for gap in range(slot) if gap not in is_admitted]
        num_later = [sum(admitted for other, admitted in is_admitted.items() if other > gap) for gap in missing]
        assert slots.is_in_turn(slot) == all(window is not None and later >= window for later in num_later)


def test_closed_slots_do_not_move_the_window() -> None:
    slots = SlotOrder(window_slots=2)
    slots.admit(1)
    for slot in range(2, 9):
        slots.close(slot)
    assert not slots.is_in_turn(1)
    slots.admit(9)
    assert slots.is_in_turn(1)


def test_what_is_settled_is_forgotten() -> None:
    slots = SlotOrder(window_slots=2)
    for slot in range(0, 100, 2):
        slots.close(slot)
        slots.admit(slot + 1)
    assert len(slots.closed) == 50
    slots.forget_below(97)
    assert slots.closed == [[98, 99]]
    assert slots.seen_without([]) == [[0, 100]]


def test_restored_order_decides_as_before() -> None:
    slots = SlotOrder(window_slots=2)
    for slot in (0, 2, 5):
        slots.admit(slot)
    slots.close(3)
    restored = SlotOrder.restore(2, slots.seen_without([5]), slots.closed)
    assert 5 not in restored
    assert [slot for slot in range(6) if slot in restored] == [0, 2, 3]
    restored.admit(5)
    assert restored.is_in_turn(2)
    assert not restored.is_in_turn(5)


def test_a_slot_that_was_not_seen_has_no_turn() -> None:
    with pytest.raises(KeyError):
        SlotOrder(window_slots=1).is_in_turn(0)
