"""The bound on how many completions a worker can choose from, beside a count of all of them."""

import math
from itertools import product

import pytest
import torch
from benchmarks.steering import bits_per_token
from hypothesis import given
from hypothesis import strategies as st

GAPS = st.lists(st.lists(st.floats(0.001, 0.5), max_size=3), min_size=1, max_size=5)


def counted(gaps: list[list[float]], budget: float) -> int:
    """Completions whose gaps add up to no more than the budget."""
    return sum(sum(choice) <= budget for choice in product(*([0.0, *each] for each in gaps)))


@given(GAPS, st.floats(0.0, 0.3))
def test_there_are_never_more_choices_than_the_bound_says(gaps: list[list[float]], mean_margin: float) -> None:
    bits = bits_per_token([torch.tensor([0.0, *each]) for each in gaps], mean_margin)
    assert math.log2(counted(gaps, mean_margin * len(gaps))) <= bits * len(gaps) + 1e-6


@given(GAPS)
def test_without_a_budget_it_is_the_count(gaps: list[list[float]]) -> None:
    bits = bits_per_token([torch.tensor([0.0, *each]) for each in gaps])
    assert bits * len(gaps) == pytest.approx(math.log2(counted(gaps, math.inf)), abs=1e-6)


def test_a_budget_of_nothing_leaves_nothing() -> None:
    gaps = [torch.tensor([0.0, 0.2, 0.3])] * 10
    assert bits_per_token(gaps, 0.0) < 1e-6
    assert bits_per_token(gaps, 1.0) == pytest.approx(math.log2(3))
