"""Turns keep every stratum within one of its share, and an interleaving is a bijection that does so while it can."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.slots.strata import Interleaving, Turns, index_from_the_end
from farflung.wire.pool import Stratum

weights_of = st.lists(st.integers(1, 20), min_size=1, max_size=6)


@given(weights_of)
def test_every_prefix_gives_every_stratum_its_share_to_within_one(weights: list[int]) -> None:
    turns, total, counts = Turns(weights), sum(weights), [0] * len(weights)
    for position in range(2 * total + 3):
        stratum, rank = turns.at(position)
        assert rank == counts[stratum]
        assert turns.position_of(stratum, rank) == position
        counts[stratum] += 1
        assert turns.counts(position + 1) == tuple(counts)
        for weight, count in zip(weights, counts, strict=True):
            assert abs(count * total - (position + 1) * weight) < total


def test_two_to_one_is_as_the_picture_says() -> None:
    assert [Turns([2, 1]).at(position)[0] for position in range(7)] == [0, 0, 1, 0, 0, 1, 0]
    both = Interleaving([3, 5], [2, 1])
    assert [both.locate(index)[0] for index in range(8)] == [0, 0, 1, 0, 1, 1, 1, 1]


def test_a_stratum_of_weight_0_never_has_a_turn() -> None:
    turns = Turns([0, 3])
    assert [turns.at(position) for position in range(3)] == [(1, 0), (1, 1), (1, 2)]
    with pytest.raises(ValueError, match="stratum 0 has weight 0"):
        turns.position_of(0, 0)


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1]])
def test_weights_that_give_nobody_a_turn_are_refused(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one, none negative and not all 0"):
        Turns(weights)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=5))
def test_an_interleaving_has_every_task_of_every_stratum_once(parts: list[tuple[int, int]]) -> None:
    sizes, weights = [size for size, _ in parts], [weight for _, weight in parts]
    both = Interleaving(sizes, weights)
    places = [both.locate(index) for index in range(sum(sizes))]
    assert sorted(places) == [(stratum, member) for stratum, size in enumerate(sizes) for member in range(size)]
    assert [both.index_of(*place) for place in places] == list(range(sum(sizes)))
    counts = [0] * len(sizes)
    for number, (stratum, member) in enumerate(places, 1):
        assert member == counts[stratum]
        counts[stratum] += 1
        if any(count == size for count, size in zip(counts, sizes, strict=True)):
            break
        for weight, count in zip(weights, counts, strict=True):
            assert abs(count * sum(weights) - number * weight) < sum(weights)


def test_tasks_outside_are_refused() -> None:
    both = Interleaving([3, 5], [2, 1])
    for index in (-1, 8):
        with pytest.raises(IndexError, match="of 8"):
            both.locate(index)
    with pytest.raises(IndexError, match="task 3 of stratum 0, which has 3"):
        both.index_of(0, 3)


def test_a_million_tasks_are_located_without_a_table() -> None:
    both = Interleaving([10**15, 90, 26**6], [1, 2, 3])
    for index in (0, 500, 10**9, 10**15):
        assert both.index_of(*both.locate(index)) == index


def test_draws_from_the_end_go_through_all_strata() -> None:
    strata = (Stratum(name="a", num_tasks=3, weight=2), Stratum(name="b", num_tasks=5, weight=1))
    both = Interleaving([3, 5], [2, 1])
    drawn = [both.locate(index_from_the_end(strata, 8, draw)) for draw in range(6)]
    assert drawn == [(0, 2), (0, 1), (1, 4), (0, 0), (0, 2), (1, 3)]
    assert [index_from_the_end((), 4, draw) for draw in range(5)] == [3, 2, 1, 0, 3]
