"""Which slots are given, and how far ahead: the staleness bound as a property."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farflung.local.slot_book import SlotBook, Turn, local_rules
from tiny_pool import pool_spec


def a_book(*seen: int, **rules: Any) -> SlotBook:
    return SlotBook(pool_spec(**rules), set(seen).__contains__)


def granted(book: SlotBook, newest_version: int) -> list[Turn]:
    """Everything that may be given now."""
    turns: list[Turn] = []
    while (turn := book.grant(newest_version)) is not None:
        turns.append(turn)
    return turns


def test_nothing_is_given_before_there_is_a_version() -> None:
    assert a_book().grant(-1) is None


def test_at_most_the_bound_of_batches_is_out_and_settling_makes_room() -> None:
    book = SlotBook(
        local_rules(pool_spec(max_staleness=2, max_outstanding_groups=1000)), lambda _: False
    )  # two slots make a batch
    assert [turn.slot for turn in granted(book, 0)] == [0, 1, 2, 3, 4, 5]
    book.settle([0, 1])
    assert granted(book, 1) == [Turn(slot=6, policy_version=1), Turn(slot=7, policy_version=1)]


def test_the_pools_own_limit_holds_where_it_is_lower_but_a_batch_always_fits() -> None:
    assert len(granted(a_book(max_staleness=4, max_outstanding_groups=6), 0)) == 3
    assert len(granted(a_book(max_staleness=4, groups_per_batch=8, max_outstanding_groups=8), 0)) == 4


def test_slots_that_were_settled_before_are_not_given_again() -> None:
    assert [turn.slot for turn in granted(a_book(0, 1, 3), 5)] == [2, 4, 5, 6]


def test_what_a_dead_sampler_had_goes_first_with_the_newest_version() -> None:
    book = a_book()
    granted(book, 0)
    assert book.give_back(2) == 1
    assert book.grant(3) == Turn(slot=2, policy_version=3)
    assert book.give_back(2) == 2


def test_deterministic_slots_have_their_version_and_wait_for_it() -> None:
    book = a_book(deterministic_seed=0, max_staleness=1, max_outstanding_groups=100)
    assert [(turn.slot, turn.policy_version) for turn in granted(book, 0)] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    book.settle([0, 1])
    assert [(turn.slot, turn.policy_version) for turn in granted(book, 1)] == [(4, 1), (5, 1)]
    book.give_back(5)
    assert book.grant(2) == Turn(slot=5, policy_version=1)
    assert book.needed_versions(2) == range(1, 3)


@given(
    batch=st.integers(1, 3),
    max_staleness=st.integers(0, 4),
    outstanding=st.integers(1, 40),
    choices=st.lists(st.integers(0, 5), max_size=60),
)
def test_trained_in_order_a_slot_is_never_older_than_the_bound(
    batch: int, max_staleness: int, outstanding: int, choices: list[int]
) -> None:
    values = {"groups_per_slot": 1, "groups_per_batch": batch, "max_staleness": max_staleness}
    rules = local_rules(pool_spec(**values, max_outstanding_groups=max(batch, outstanding)))
    book, version, sampled = SlotBook(rules, lambda _: False), 0, {}
    for choice in choices:
        turn = book.grant(version) if choice else None
        if turn is not None:
            sampled[turn.slot] = turn.policy_version
            continue
        ready = sorted(sampled)[:batch]
        if len(ready) == batch:  # the trainer makes a version of the next batch
            assert all(version - sampled.pop(slot) <= max_staleness for slot in ready)
            version += 1
            book.settle(ready)
