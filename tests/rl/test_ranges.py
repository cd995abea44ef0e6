import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.ranges import RangeSet

members = st.sets(st.integers(0, 30))


@given(st.lists(st.integers(0, 30)))
def test_it_is_the_set_of_what_was_added(values: list[int]) -> None:
    ranges = RangeSet()
    fresh = [ranges.add(value) for value in values]
    assert fresh == [value not in values[:position] for position, value in enumerate(values)]
    assert [value for value in range(32) if value in ranges] == sorted(set(values))
    assert len(ranges) == len(set(values))


@given(members)
def test_ranges_are_ascending_apart_and_as_few_as_can_be(values: set[int]) -> None:
    pairs = RangeSet(values).pairs()
    assert len(pairs) == sum(value - 1 not in values for value in values)
    assert {value for start, stop in pairs for value in range(start, stop)} == values
    assert pairs == sorted(pairs)


@given(members, st.integers(0, 31))
def test_views_agree_with_the_set(values: set[int], bound: int) -> None:
    ranges = RangeSet(values)
    assert ranges.count_from(bound) == sum(value >= bound for value in values)
    assert ranges.first_gap == min(set(range(32)) - values)
    for value in values:
        assert ranges.run_start(value) == max(gap for gap in range(-1, value) if gap not in values) + 1


@given(members, st.integers(0, 31))
def test_removing_below_keeps_the_rest(values: set[int], bound: int) -> None:
    ranges = RangeSet(values)
    ranges.remove_below(bound)
    assert ranges.pairs() == RangeSet(value for value in values if value >= bound).pairs()


@given(
    st.sets(st.integers(0, 30), min_size=1).flatmap(
        lambda values: st.tuples(st.just(values), st.sampled_from(sorted(values)))
    )
)
def test_removing_one_leaves_the_others(case: tuple[set[int], int]) -> None:
    values, gone = case
    ranges = RangeSet(values)
    ranges.remove(gone)
    assert ranges.pairs() == RangeSet(values - {gone}).pairs()


@given(members)
def test_pairs_survive_a_round_trip(values: set[int]) -> None:
    assert RangeSet.from_pairs(RangeSet(values).pairs()).pairs() == RangeSet(values).pairs()


@pytest.mark.parametrize(
    "pairs", [[[3, 3]], [[4, 2]], [[0, 2], [2, 4]], [[5, 6], [0, 1]], [[-1, 2]], [[1]], [[1, 2, 3]]]
)
def test_broken_pairs_are_refused(pairs: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="ascending and apart"):
        RangeSet.from_pairs(pairs)


def test_what_is_no_member_cannot_be_asked_about() -> None:
    ranges = RangeSet([1])
    with pytest.raises(KeyError):
        ranges.remove(0)
    with pytest.raises(KeyError):
        ranges.run_start(2)
    with pytest.raises(ValueError, match="-1 is negative"):
        ranges.add(-1)


def test_a_million_slots_in_order_are_one_range() -> None:
    ranges = RangeSet.from_pairs([[0, 999_999]])
    ranges.add(999_999)
    assert ranges.pairs() == [[0, 1_000_000]]
