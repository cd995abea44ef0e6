"""Epochs: which slot is whose, what is shown when, and what is forgotten."""

import pytest

from farflung.slots import epochs
from farflung.slots.epochs import EpochBegan, EpochBook
from farflung.slots.lifecycle import IllegalEvent
from farflung.slots.seeds import check_reveal
from farflung.wire.epoch import EpochNotice

POOL = "a" * 64


def epoch(number: int, first_slot: int) -> EpochBegan:
    return EpochBegan(number=number, first_slot=first_slot, secret=bytes([number % 256]) * 32, at_ms=number)


def book(*first_slots: int) -> EpochBook:
    return EpochBook(POOL, [epoch(number, slot) for number, slot in enumerate(first_slots)])


def test_a_slot_belongs_to_the_last_epoch_that_began_before_it() -> None:
    found = book(0, 3, 7)
    assert [found.of_slot(slot).number for slot in (0, 2, 3, 6, 7, 99)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("number", "first_slot"), [(3, 9), (1, 9), (2, 8), (2, 10)])
def test_the_next_epoch_begins_with_the_next_slot(number: int, first_slot: int) -> None:
    found = book(0, 3)
    with pytest.raises(IllegalEvent, match="consecutive"):
        found.begin(epoch(number, first_slot), next_slot=9)
    assert found.current.number == 1
    found.begin(epoch(2, 9), next_slot=9)
    assert found.current.number == 2


def test_a_secret_is_shown_when_every_slot_of_its_epoch_has_ended_and_not_before() -> None:
    found = book(0, 3, 7)
    shown = {oldest: [notice.number for notice in found.notices(oldest) if notice.secret] for oldest in range(10)}
    assert shown[2] == []
    assert shown[3] == [0]
    assert shown[6] == [0]
    assert shown[7] == [0, 1]
    assert shown[9] == [0, 1], "the one that runs is never shown"
    for notice in found.notices(9)[:2]:
        assert check_reveal(notice.commitment, bytes.fromhex(notice.secret))


def test_nobody_can_write_a_notice_that_shows_the_secret_of_a_running_epoch() -> None:
    with pytest.raises(ValueError, match="still runs"):
        EpochNotice(
            pool_digest=POOL, number=0, first_slot=0, commitment="b" * 64, opened_at_ms=0, secret="c" * 64
        )  # fmt: skip


def test_the_book_is_bounded_but_never_forgets_whom_a_slot_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "MAX_REMEMBERED", 3)
    found = book(*range(0, 60, 10))
    found.forget(oldest_slot=15)
    assert [each.number for each in found.began] == [1, 2, 3, 4, 5]
    assert found.of_slot(15).number == 1
    found.forget(oldest_slot=55)
    assert [each.number for each in found.began] == [3, 4, 5]
