"""avg@k, pass@k, maj@k against counting by hand and by enumeration."""

from itertools import combinations
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.evaluation.scores import TaskSamples, avg_at, maj_at, pass_at


def samples(correct: str, answers: str | None = None) -> TaskSamples:
    """`"101"`: right, wrong, right; answers one letter each, by default one per correctness."""
    return TaskSamples(correct=tuple(float(c) for c in correct), answers=tuple(answers or correct))


def test_pass_at_k_by_hand() -> None:
    # 1 of 4 right: pass@1 = 1/4, pass@2 = 1 - C(3,2)/C(4,2) = 1/2, pass@4 = 1
    assert [pass_at([samples("1000")], k).value for k in (1, 2, 4)] == [0.25, 0.5, 1.0]


def test_a_majority_of_wrong_answers_loses_and_a_tie_is_shared() -> None:
    assert maj_at([samples("1100", "aabc")], 4).value == 1.0
    assert maj_at([samples("1000", "abbb")], 4).value == 0.0
    assert maj_at([samples("1010", "abab")], 4).value == 0.5


def test_tasks_weigh_alike_however_many_samples_they_have() -> None:
    assert avg_at([samples("1"), samples("0000")]).value == 0.5


def test_tasks_with_too_few_samples_are_left_out_and_counted() -> None:
    estimate = pass_at([samples("11"), samples("0000")], 4)
    assert (estimate.value, estimate.num_tasks) == (0.0, 1)
    assert isnan(pass_at([samples("1")], 2).value)


def test_four_wrong_tasks_do_not_prove_that_all_are() -> None:
    estimate = avg_at([samples("00")] * 4)
    assert (estimate.value, estimate.low) == (0.0, 0.0)
    assert estimate.high == pytest.approx(0.49, abs=0.005)  # Wilson, 0 of 4
    assert avg_at([samples("11")] * 4).low == pytest.approx(0.51, abs=0.005)


def test_the_interval_holds_the_value_and_closes_with_more_tasks() -> None:
    few, many = (
        avg_at([samples("10")] * 4 + [samples("11"), samples("00")] * 3),
        avg_at([samples("1"), samples("0")] * 500),
    )
    assert few.low < few.value < few.high
    assert many.high - many.low < few.high - few.low < 1
    assert avg_at([samples("1"), samples("0")] * 9) == avg_at([samples("1"), samples("0")] * 9)


@given(st.text("01", min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_is_the_mean_over_all_subsets(correct: str, k: int) -> None:
    if k > len(correct):
        assert pass_at([samples(correct)], k).num_tasks == 0
        return
    subsets = list(combinations(correct, k))
    expected = sum("1" in subset for subset in subsets) / len(subsets)
    assert pass_at([samples(correct)], k).value == pytest.approx(expected)


def test_maj_at_k_of_more_samples_comes_near_the_mean_over_all_subsets() -> None:
    task = samples("1100011", "aabbcaa")
    expected = sum(maj_at([_part(task, members)], 3).value for members in combinations(range(7), 3)) / 35
    assert maj_at([task] * 50, 3).value == pytest.approx(expected, abs=0.05)


def _part(task: TaskSamples, members: tuple[int, ...]) -> TaskSamples:
    return TaskSamples(
        correct=tuple(task.correct[member] for member in members),
        answers=tuple(task.answers[member] for member in members),
    )


def test_k_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="k is 0"):
        pass_at([], 0)
