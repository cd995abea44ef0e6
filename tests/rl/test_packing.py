import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.packing import GOOD_BALANCE, split_micro_batches
from farflung.rl.types import TrainingSample


def a_sample(prompt: int, completion: int, *, sample: int = 0, group: int | None = None) -> TrainingSample:
    """Of a group of its own unless told otherwise; all prompts of a group agree."""
    return TrainingSample(
        tokens=np.array([*range(prompt), *[sample] * completion], dtype=np.int32),
        num_prompt_tokens=prompt,
        behaviour_logprobs=np.zeros(completion, dtype=np.float32),
        advantages=np.ones(completion, dtype=np.float32),
        loss_mask=np.ones(completion, dtype=np.bool_),
        policy_version=0,
        slot=0,
        group=1000 + sample if group is None else group,
        sample=sample,
    )


def load(part: list[TrainingSample]) -> int:
    return sum(sample.num_forward_tokens for sample in part)


shapes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=24)


@given(shapes, st.integers(17, 60))
def test_micro_batches_hold_every_sample_once_and_never_too_much(pairs: list[tuple[int, int]], max_tokens: int) -> None:
    samples = [a_sample(*pair, sample=number) for number, pair in enumerate(pairs)]
    parts = split_micro_batches(samples, max_tokens)
    assert sorted(sample.sample for part in parts for sample in part) == list(range(len(samples)))
    assert all(0 < load(part) <= max_tokens for part in parts)
    assert all(part == sorted(part, key=lambda sample: sample.sample) for part in parts)
    total = sum(sample.num_forward_tokens for sample in samples)
    assert len(parts) <= -(-2 * total // max_tokens)


def test_micro_batches_are_balanced() -> None:
    samples = [a_sample(1, length, sample=length) for length in (8, 7, 6, 5, 4, 3, 2, 1)]
    loads = [load(part) for part in split_micro_batches(samples, 20)]
    assert loads == [18, 18]


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "count"),
    [((6, 6, 4, 4, 5, 5), 10, 3), ((6, 6, 4, 4, 5, 5), 30, 1), ((6,) * 7 + (1,), 10, 7)],
)
def test_micro_batches_are_as_few_as_fit(lengths: tuple[int, ...], max_tokens: int, count: int) -> None:
    samples = [a_sample(1, length, sample=number) for number, length in enumerate(lengths)]
    assert len(split_micro_batches(samples, max_tokens)) == count


def test_samples_just_over_half_a_micro_batch_go_one_by_one() -> None:
    samples = [a_sample(1, 6, sample=number) for number in range(40)]
    assert [len(part) for part in split_micro_batches(samples, 11)] == [1] * 40


def test_no_samples_make_no_micro_batches() -> None:
    assert split_micro_batches([], 10) == []


def test_a_sample_longer_than_a_micro_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="12 forward tokens but a micro-batch at most 10: raise max_tokens"):
        split_micro_batches([a_sample(5, 8)], 10)


def test_first_fit_decreasing_by_hand() -> None:
    """Into 12: 7 + 5, 6 + 4 + 2, 3 + 1, so 3 of them; with room for 10 still 3: 7 + 3, 6 + 4, 5 + 2 + 1; with 9 not."""
    samples = [a_sample(1, length, sample=length) for length in (1, 2, 3, 4, 5, 6, 7)]
    assert sorted(map(load, split_micro_batches(samples, 12))) == [8, 10, 10]


@pytest.mark.parametrize("name", ["uniform", "lognormal", "bimodal"])
def test_ragged_lengths_are_packed_tightly_and_evenly(name: str) -> None:
    random = np.random.default_rng(0)
    lengths = {
        "uniform": random.integers(1, 1001, 256),
        "lognormal": np.clip(random.lognormal(5, 1, 256), 1, 1000).astype(int),
        "bimodal": np.where(random.random(256) < 0.2, random.integers(700, 1001, 256), random.integers(10, 80, 256)),
    }[name]
    samples = [a_sample(1, int(length), sample=number) for number, length in enumerate(lengths)]
    loads = [load(part) for part in split_micro_batches(samples, 4000)]
    assert len(loads) <= -(-sum(loads) // 4000) + 1
    assert max(loads) <= max(1.02, GOOD_BALANCE) * np.mean(loads)


def test_rollouts_of_a_group_stay_together() -> None:
    samples = [a_sample(5, 3, sample=number, group=number // 2) for number in range(16)]
    parts = split_micro_batches(samples, 60)
    assert len(parts) == 2
    assert sum(len({sample.group for sample in part}) for part in parts) == 8


def test_a_group_too_long_for_a_quarter_of_a_micro_batch_is_divided() -> None:
    samples = [a_sample(5, 6, sample=number, group=0) for number in range(16)]
    assert sorted(map(load, split_micro_batches(samples, 80))) == [80, 80]


@given(shapes, st.integers(17, 60), st.integers(1, 5))
def test_bundles_never_overflow(pairs: list[tuple[int, int]], max_tokens: int, size: int) -> None:
    samples = [a_sample(4, pair[1], sample=number, group=number // size) for number, pair in enumerate(pairs)]
    parts = split_micro_batches(samples, max_tokens)
    assert sorted(sample.sample for part in parts for sample in part) == list(range(len(samples)))
    assert all(load(part) <= max_tokens for part in parts)
