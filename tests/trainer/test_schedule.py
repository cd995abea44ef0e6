import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.trainer.schedule import Schedule


def test_warm_up_and_decay_by_hand() -> None:
    schedule = Schedule(lr=1.0, warmup_steps=4, final_share=0.5, total_steps=10)
    expected = [0.25 * 1.0, 0.5 * 0.95, 0.75 * 0.9, 1.0 * 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.5, 0.5]
    assert [schedule.at(step) for step in range(13)] == pytest.approx(expected)


def test_without_warm_up_and_decay_it_is_constant() -> None:
    schedule = Schedule(lr=3e-4, warmup_steps=0, final_share=1.0, total_steps=1)
    assert {schedule.at(step) for step in (0, 1, 5, 1000)} == {3e-4}


@given(st.integers(0, 20), st.floats(0, 1), st.integers(1, 50), st.integers(0, 200))
def test_it_stays_between_zero_and_the_peak_and_never_rises_after_warm_up(
    warmup: int, share: float, total: int, step: int
) -> None:
    schedule = Schedule(lr=2.0, warmup_steps=warmup, final_share=share, total_steps=total)
    assert 0 <= schedule.at(step) <= 2.0
    if step >= warmup:
        assert schedule.at(step + 1) <= schedule.at(step)
    if step >= max(warmup, total):
        assert schedule.at(step) == pytest.approx(2.0 * share)
