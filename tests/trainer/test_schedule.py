from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.trainer.config import OptimizerConfig
from farflung.trainer.schedule import Schedule, Shape

SHAPES = get_args(Shape)


def schedule(shape: Shape, *, warmup: int = 4, total: int = 12, final: float = 0.2, decay: float = 0.5) -> Schedule:
    return Schedule(shape=shape, lr=1.0, warmup_steps=warmup, total_steps=total, final_share=final, decay_share=decay)


WARM_UP = [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("shape", "after"),
    [
        ("constant", [1.0] * 11),
        ("linear", [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2, 0.2]),
        # 0.6 + 0.4 cos(pi k / 8)
        ("cosine", [1.0, 0.96955, 0.88284, 0.75307, 0.6, 0.44693, 0.31716, 0.23045, 0.2, 0.2, 0.2]),
        ("wsd", [1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2]),
    ],
)
def test_every_shape_by_hand(shape: Shape, after: list[float]) -> None:
    rates = [schedule(shape).at(step) for step in range(15)]
    assert rates == pytest.approx([*WARM_UP, *after], abs=1e-5)


def test_every_shape_of_the_settings_is_one_of_these() -> None:
    """L14: no documented value without a meaning."""
    assert get_args(OptimizerConfig.model_fields["schedule"].annotation) == SHAPES


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_shorter_than_its_warm_up_still_warms_up(shape: Shape) -> None:
    rates = [schedule(shape, warmup=4, total=3).at(step) for step in range(4)]
    assert rates == WARM_UP


@given(
    st.sampled_from(SHAPES),
    st.integers(0, 20),
    st.floats(0, 1),
    st.floats(0.01, 1),
    st.integers(1, 50),
    st.integers(0, 200),
)
def test_it_stays_between_zero_and_the_peak_and_never_rises_after_warm_up(
    shape: Shape, warmup: int, final: float, decay: float, total: int, step: int
) -> None:
    chosen = schedule(shape, warmup=warmup, total=total, final=final, decay=decay)
    assert 0 <= chosen.at(step) <= 1.0
    if step >= warmup:
        assert chosen.at(step + 1) <= chosen.at(step) + 1e-12
    if step >= max(warmup + 1, total):
        assert chosen.at(step) == pytest.approx(1.0 if shape == "constant" else final)
