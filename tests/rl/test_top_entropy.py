import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.top_entropy import entropy_threshold, keep_top_entropy
from farflung.rl.types import TrainingSample


def a_sample(num_tokens: int, mask: list[bool] | None = None) -> TrainingSample:
    return TrainingSample(
        tokens=np.zeros(1 + num_tokens, dtype=np.int32),
        num_prompt_tokens=1,
        behaviour_logprobs=np.zeros(num_tokens, dtype=np.float32),
        advantages=np.full(num_tokens, 2.0, dtype=np.float32),
        loss_mask=np.array(mask or [True] * num_tokens),
        policy_version=0,
        slot=0,
        group=0,
        sample=0,
    )


def test_the_threshold_ignores_padding() -> None:
    """Case L15: 90% padding, whatever stands there."""
    real = np.arange(10.0)
    mask = np.arange(100) < 10
    for junk in (0.0, 50.0, np.nan):
        padded = np.where(mask, np.pad(real, (0, 90)), junk)
        assert entropy_threshold([padded], [mask], 0.2) == np.quantile(real, 0.8)


def test_advantages_stay_where_entropy_is_high_and_nothing_else_changes() -> None:
    """Five tokens over two samples, the upper two fifths: entropies of at least 3.4."""
    samples = [a_sample(3), a_sample(3, [True, False, True])]
    first, second = keep_top_entropy(samples, [np.array([1.0, 4.0, 2.0]), np.array([5.0, 99.0, 3.0])], 0.4)
    assert first.advantages.tolist() == [0, 2, 0]
    assert second.advantages.tolist() == [2, 2, 0]
    assert second.advantages.dtype == np.float32
    assert second.loss_mask.tolist() == [True, False, True]


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_all_of_them_are_kept_at_share_one(entropies: list[float]) -> None:
    (sample,) = keep_top_entropy([a_sample(len(entropies))], [np.array(entropies)], 1.0)
    assert sample.advantages.tolist() == [2.0] * len(entropies)


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="must be above 0 and at most 1"):
        keep_top_entropy([a_sample(1)], [np.zeros(1)], share)


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no loss token"):
        entropy_threshold([np.zeros(2)], [np.zeros(2, dtype=np.bool_)], 0.5)
