"""Thresholds between spreads, and what counts can bear."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.proofs.calibration import (
    MARGIN,
    extrapolated_tail,
    rate_upper_bound,
    roc,
    separate,
    wilson_interval,
)


def test_a_threshold_lies_between_honest_work_and_impostors() -> None:
    found = separate([0.010, 0.014], [0.036, 0.5], floor=0.001)
    assert found.threshold == pytest.approx(math.sqrt(0.014 * 0.036))
    assert found.is_clean


def test_it_is_never_close_to_honest_work_even_if_that_lets_an_impostor_in() -> None:
    found = separate([0.010], [0.012], floor=0.001)
    assert found.threshold == pytest.approx(MARGIN * 0.010)
    assert not found.is_clean


def test_exact_agreement_gets_the_floor() -> None:
    assert separate([0.0, 0.0], [], floor=0.005).threshold == 0.005
    assert separate([0.0], [0.2], floor=0.005).threshold == 0.005


def test_without_honest_work_there_is_no_threshold() -> None:
    with pytest.raises(ValueError, match="no honest"):
        separate([], [1.0], floor=0.1)


@pytest.mark.parametrize(
    ("events", "trials", "bound"),
    [(0, 100, 0.0295), (0, 30_000, 9.985e-5), (1, 100, 0.0466), (5, 1000, 0.01048), (10, 10, 1.0)],
)
def test_upper_bounds_are_those_of_clopper_and_pearson(events: int, trials: int, bound: float) -> None:
    assert rate_upper_bound(events, trials) == pytest.approx(bound, rel=0.01)


@pytest.mark.parametrize(
    ("events", "trials", "interval"), [(0, 100, (0.0, 0.0370)), (50, 100, (0.4038, 0.5962)), (100, 100, (0.9630, 1.0))]
)
def test_wilson(events: int, trials: int, interval: tuple[float, float]) -> None:
    assert wilson_interval(events, trials) == pytest.approx(interval, abs=2e-4)


@given(st.integers(1, 2000), st.data())
def test_bounds_hold_the_rate_that_was_seen(trials: int, data: st.DataObject) -> None:
    events = data.draw(st.integers(0, trials))
    low, high = wilson_interval(events, trials)
    assert 0 <= low <= events / trials + 1e-12
    assert events / trials - 1e-12 <= high <= 1
    assert events / trials <= rate_upper_bound(events, trials) <= 1


def test_an_exponential_tail_is_extrapolated_to_its_own_probability() -> None:
    figures = [-math.log(1 - (number + 0.5) / 5000) for number in range(5000)]
    assert extrapolated_tail(figures, 12.0) == pytest.approx(math.exp(-12), rel=0.5)
    assert extrapolated_tail(figures[:50], 12.0) is None, "too few to fit a tail to"
    assert extrapolated_tail([0.0] * 1000, 0.1) is None, "nothing varies"


def test_the_curve_begins_with_everything_and_ends_with_nothing() -> None:
    points = roc([1.0, 2.0], [2.0, 5.0])
    assert points == [(1.0, 0.5, 1.0), (2.0, 0.0, 0.5), (5.0, 0.0, 0.0)]
