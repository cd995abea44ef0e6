"""Keyed permutations are bijections, differ by key, and spread tasks and target lengths evenly."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.slots.permutation import KeyedPermutation, slot_target_lengths, slot_tasks

SECRET = bytes(range(32))
keys = st.binary(min_size=1, max_size=64)


def order(key: bytes, n: int) -> list[int]:
    permutation = KeyedPermutation(key, n)
    return [permutation.at(position) for position in range(n)]


def tasks_of(num_slots: int, groups_per_slot: int, num_tasks: int, secret: bytes = SECRET) -> list[int]:
    return [task for slot in range(num_slots) for task in slot_tasks(secret, slot, groups_per_slot, num_tasks)]


@given(keys, st.integers(1, 300))
def test_every_size_gives_a_bijection(key: bytes, n: int) -> None:
    assert sorted(order(key, n)) == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025])
def test_sizes_about_powers_of_two_give_bijections(n: int) -> None:
    assert sorted(order(b"key", n)) == list(range(n))


@given(keys, keys)
def test_keys_differ_exactly_when_orders_do(one: bytes, other: bytes) -> None:
    assert (order(one, 40) == order(other, 40)) == (one == other)


def test_the_golden_orders() -> None:
    assert order(b"key", 10) == [7, 4, 0, 1, 2, 5, 9, 3, 6, 8]
    assert [KeyedPermutation(b"key", 10**12).at(position) for position in (0, 1, 10**12 - 1)] == [
        802643980567,
        609039269318,
        142465838668,
    ]
    assert [slot_tasks(SECRET, slot, 4, 10) for slot in range(3)] == [(3, 5, 6, 1), (9, 7, 4, 8), (0, 2, 5, 0)]
    assert slot_target_lengths(SECRET, 0, 6, (0, 16, 32)) == (0, 16, 32, 32, 0, 16)


def test_large_domains_stay_inside_without_repeats() -> None:
    n = 10**15 + 37
    permutation = KeyedPermutation(b"key", n)
    seen = [permutation.at(position) for position in range(200)]
    assert len(set(seen)) == 200
    assert all(0 <= value < n for value in seen)
    assert max(seen) > n // 2 > min(seen)


def test_first_places_are_spread_evenly_over_keys() -> None:
    """6,000 keys: each of the 6 orders of 3 things comes 1,000 +- 150 times (5 standard deviations)."""
    counts = Counter(tuple(order(number.to_bytes(4, "big"), 3)) for number in range(6_000))
    assert len(counts) == 6
    assert all(850 <= count <= 1_150 for count in counts.values())


@pytest.mark.parametrize("position", [-1, 5, 6])
def test_positions_outside_the_domain_are_refused(position: int) -> None:
    with pytest.raises(IndexError, match="of a permutation of 5"):
        KeyedPermutation(b"key", 5).at(position)


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 30))
def test_no_task_comes_twice_before_all_came_once(groups_per_slot: int, num_tasks: int, num_slots: int) -> None:
    tasks = tasks_of(num_slots, groups_per_slot, num_tasks)
    assert len(tasks) == num_slots * groups_per_slot
    for start in range(0, len(tasks), num_tasks):
        round_of_tasks = tasks[start : start + num_tasks]
        assert len(set(round_of_tasks)) == len(round_of_tasks)


def test_rounds_have_different_orders() -> None:
    tasks = tasks_of(num_slots=10, groups_per_slot=4, num_tasks=20)
    assert sorted(tasks[:20]) == sorted(tasks[20:]) == list(range(20))
    assert tasks[:20] != tasks[20:]


def test_another_secret_gives_other_tasks_and_the_same_secret_the_same() -> None:
    assert tasks_of(5, 4, 100) == tasks_of(5, 4, 100)
    assert tasks_of(5, 4, 100) != tasks_of(5, 4, 100, secret=bytes(32))


def test_target_lengths_are_balanced_and_independent_of_the_tasks() -> None:
    lengths = [length for slot in range(30) for length in slot_target_lengths(SECRET, slot, 4, (0, 16, 32))]
    assert Counter(lengths) == {0: 40, 16: 40, 32: 40}
    tasks = tasks_of(num_slots=30, groups_per_slot=4, num_tasks=3)
    assert [(0, 16, 32)[task] for task in tasks] != lengths
    assert len(set(zip(tasks, lengths, strict=True))) == 9


def test_a_pool_without_target_lengths_asks_for_none() -> None:
    assert slot_target_lengths(SECRET, 7, 3, ()) == (0, 0, 0)


@pytest.mark.parametrize(("slot", "groups", "num_tasks"), [(-1, 1, 1), (0, 0, 1), (0, 1, 0)])
def test_slots_of_nothing_are_refused(slot: int, groups: int, num_tasks: int) -> None:
    with pytest.raises(ValueError):
        slot_tasks(SECRET, slot, groups, num_tasks)
    with pytest.raises(ValueError, match="at least 1"):
        KeyedPermutation(b"key", 0)
