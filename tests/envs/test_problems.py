from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.problems import MAX_HELDOUT_TASKS, ProblemSet, digits_of, shuffled, uniform


def every_number(problems: ProblemSet) -> list[int]:
    train = [problems.number("train", index) for index in range(problems.num_tasks)]
    return train + [problems.number("heldout", index) for index in range(problems.num_heldout_tasks)]


@given(st.integers(2, 400), st.integers(0, 5))
def test_the_splits_together_hold_every_problem_once(size: int, seed: int) -> None:
    assert sorted(every_number(ProblemSet("some-env", seed, size))) == list(range(size))


@pytest.mark.parametrize(
    ("size", "num_heldout"), [(2, 1), (10, 1), (99, 9), (10_240, 1024), (10**6, MAX_HELDOUT_TASKS)]
)
def test_a_tenth_is_held_out_up_to_a_limit(size: int, num_heldout: int) -> None:
    problems = ProblemSet("some-env", 0, size)
    assert (problems.num_tasks, problems.num_heldout_tasks) == (size - num_heldout, num_heldout)


def test_seed_and_environment_choose_the_order() -> None:
    orders = [tuple(every_number(ProblemSet(env, seed, 50))) for env, seed in [("a", 0), ("a", 1), ("b", 0)]]
    assert len(set(orders)) == 3


@given(st.integers(0, 10**6), st.integers(2, 26))
def test_digits_are_those_of_the_number(number: int, base: int) -> None:
    digits = digits_of(number, base, 20)
    assert len(digits) == 20
    assert sum(digit * base**power for power, digit in enumerate(reversed(digits))) == number
    assert all(0 <= digit < base for digit in digits)


def test_uniform_and_shuffled_depend_on_each_field_and_are_even() -> None:
    counts = Counter(uniform(5, "d", "text", draw) for draw in range(5000))
    assert sorted(counts) == [0, 1, 2, 3, 4]
    assert all(850 < count < 1150 for count in counts.values())  # five standard deviations
    firsts = Counter(shuffled(range(4), "d", draw)[0] for draw in range(4000))
    assert all(850 < firsts[item] < 1150 for item in range(4))
    assert sorted(shuffled(range(9), "d", 1)) == list(range(9))
    assert len({uniform(2**60, domain, *fields) for domain in "de" for fields in [(1,), (2,), ("1",), (1, 1)]}) == 8
