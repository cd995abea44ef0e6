import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.staleness import StalenessHistogram, is_admissible, staleness


@pytest.mark.parametrize(("current", "sampled", "versions"), [(0, 0, 0), (5, 5, 0), (5, 4, 1), (5, 1, 4)])
def test_staleness_counts_publications_since_sampling(current: int, sampled: int, versions: int) -> None:
    assert staleness(current, sampled) == versions


def test_a_version_from_the_future_is_refused() -> None:
    with pytest.raises(ValueError, match="version 6 but the trainer is at 5"):
        staleness(5, 6)


@pytest.mark.parametrize(
    ("sampled", "admissible"),
    [(0, False), (1, True), (5, True), (6, False)],
    ids=["too old", "oldest", "now", "future"],
)
def test_the_bound_itself_is_admissible(sampled: int, admissible: bool) -> None:
    assert is_admissible(5, sampled, max_staleness=4) is admissible


def test_zero_staleness_is_the_synchronous_mode() -> None:
    assert [version for version in range(5) if is_admissible(3, version, max_staleness=0)] == [3]


def test_a_histogram_weighs_by_count() -> None:
    histogram = StalenessHistogram()
    histogram.add(0, 30)
    histogram.add(4, 10)
    assert (histogram.total, histogram.mean, histogram.max) == (40, 1.0, 4)
    assert list(histogram.counts.items()) == [(0, 30), (4, 10)]


def test_an_empty_histogram_has_no_staleness() -> None:
    assert (StalenessHistogram().total, StalenessHistogram().mean, StalenessHistogram().max) == (0, 0.0, 0)


def test_negative_staleness_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        StalenessHistogram().add(-1)


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_merged_histograms_equal_one_over_all(left: list[int], right: list[int]) -> None:
    merged, other, whole = StalenessHistogram(), StalenessHistogram(), StalenessHistogram()
    for histogram, values in ((merged, left), (other, right), (whole, left + right)):
        for value in values:
            histogram.add(value)
    merged.merge(other)
    assert merged.counts == whole.counts
