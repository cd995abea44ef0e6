import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.minibatches import minibatches

SAMPLES = list(range(20))  # only their places matter


def cut(count: int, seed: int = 0, samples: list[int] = SAMPLES) -> list[list[int]]:
    return minibatches(samples, count, seed)  # type: ignore[arg-type, return-value]


@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, (1 << 64) - 1))
def test_every_sample_is_in_exactly_one_part_and_parts_are_alike(num_samples: int, count: int, seed: int) -> None:
    parts = cut(count, seed, list(range(num_samples)))
    assert sorted(sample for part in parts for sample in part) == list(range(num_samples))
    assert len(parts) == min(count, num_samples)
    sizes = {len(part) for part in parts}
    assert not sizes or (max(sizes) - min(sizes) <= 1 and min(sizes) > 0)
    assert all(part == sorted(part) for part in parts)


def test_the_order_is_a_function_of_the_seed() -> None:
    assert cut(4, 7) == cut(4, 7)
    assert len({str(cut(4, seed)) for seed in range(20)}) == 20


def test_the_order_is_the_same_in_every_release() -> None:
    """Who resumes with another numpy or Python repeats the same steps."""
    assert cut(4, 3) == [[3, 7, 9, 11, 19], [1, 10, 14, 15, 17], [2, 4, 5, 13, 16], [0, 6, 8, 12, 18]]


def test_one_part_is_the_samples_as_they_are() -> None:
    assert cut(1, 5) == [SAMPLES]
    assert cut(1, 5, []) == []


def test_no_parts_at_all_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="0 minibatches: there must be at least 1"):
        cut(0)
