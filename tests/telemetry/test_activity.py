"""Every second is attributed to exactly one activity."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.telemetry.activity import ActivityClock


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_time_is_booked_on_the_activity_that_was_current() -> None:
    time = FakeTime()
    clock = ActivityClock(time)
    time.now_s += 1
    assert clock.read().current == "starting"
    with clock.waiting("lease"):
        time.now_s += 2
        inside = clock.read()
    with clock.busy("sampling"):
        time.now_s += 4
    with clock.waiting("receipt"):
        time.now_s += 8
    after = clock.read()
    assert (inside.current, inside.busy_s, inside.idle_s) == ("waiting for lease", 1.0, 2.0)
    assert (after.busy_s, after.idle_s) == (5.0, 10.0)
    assert after.idle_by_cause_s == {"lease": 2.0, "receipt": 8.0}
    assert after.idle_ratio == pytest.approx(10 / 15)


def test_the_inner_of_two_nested_activities_counts_and_the_outer_one_comes_back() -> None:
    time = FakeTime()
    clock = ActivityClock(time)
    with clock.waiting("batch"):
        time.now_s += 1
        with clock.busy("evaluating"):
            time.now_s += 2
            assert clock.read().current == "evaluating"
        time.now_s += 4
        assert clock.read().current == "waiting for batch"
    assert (clock.read().busy_s, clock.read().idle_s) == (2.0, 5.0)


def test_an_exception_ends_the_activity() -> None:
    time = FakeTime()
    clock = ActivityClock(time)

    def fail() -> None:
        with clock.waiting("lease"):
            time.now_s += 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    time.now_s += 2
    assert (clock.read().current, clock.read().busy_s, clock.read().idle_s) == ("working", 2.0, 1.0)


def test_a_clock_that_has_not_moved_has_idle_ratio_zero() -> None:
    assert ActivityClock(FakeTime()).read().idle_ratio == 0.0


@given(steps=st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 1000)), max_size=20))
def test_busy_and_idle_add_up_to_the_time_passed(steps: list[tuple[bool, str, int]]) -> None:
    time = FakeTime()
    clock = ActivityClock(time)
    for is_busy, name, seconds in steps:
        with clock.busy(name) if is_busy else clock.waiting(name):
            time.now_s += seconds
    activity = clock.read()
    assert activity.busy_s + activity.idle_s == time.now_s - 100
    idle = [(name, seconds) for is_busy, name, seconds in steps if not is_busy]
    by_cause = {
        name: sum(s for _, s in group) for name, group in itertools.groupby(sorted(idle), key=lambda item: item[0])
    }
    assert activity.idle_by_cause_s == by_cause
