import numpy as np
import pytest
from numpy.typing import NDArray

from farflung.rl.critic import critic_estimates
from farflung.rl.types import TrainingSample


def a_sample(mask: list[bool], sample: int = 0) -> TrainingSample:
    return TrainingSample(
        tokens=np.arange(2 + len(mask), dtype=np.int32),
        num_prompt_tokens=2,
        behaviour_logprobs=np.full(len(mask), -1.0, dtype=np.float32),
        advantages=np.zeros(len(mask), dtype=np.float32),
        loss_mask=np.array(mask),
        policy_version=0,
        slot=0,
        group=0,
        sample=sample,
    )


VALUES = np.array([0.2, 0.5, 0.6])
ADVANTAGES = np.array([0.756, 0.48, 0.4])
"""Of reward 1 at the end with gamma 1 and lambda 0.95."""
RETURNS = [0.956, 0.98, 1.0]


def whitened(values: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = (values - values.mean()) / values.std(ddof=1)
    return result


def test_advantages_of_three_tokens_by_hand() -> None:
    found = critic_estimates([a_sample([True] * 3)], [1.0], [VALUES])
    assert found.returns[0].tolist() == pytest.approx(RETURNS)
    assert found.samples[0].advantages.tolist() == pytest.approx(whitened(ADVANTAGES).tolist(), rel=1e-6)


def test_a_tools_tokens_are_passed_over_and_rows_of_other_lengths_do_not_matter() -> None:
    """The reward comes at the last token that is the policy's; masked values may be anything."""
    with_tool = a_sample([True, False, True, True, False])
    values = [np.array([0.2, np.nan, 0.5, 0.6, np.nan]), np.array([0.5])]
    found = critic_estimates([with_tool, a_sample([True], 1)], [1.0, 0.0], values)
    expected = whitened(np.array([*ADVANTAGES, -0.5]))
    assert found.samples[0].advantages.tolist() == pytest.approx([expected[0], 0, expected[1], expected[2], 0])
    assert found.samples[1].advantages.tolist() == pytest.approx([expected[3]])
    assert found.returns[0].tolist() == pytest.approx([RETURNS[0], 0, RETURNS[1], RETURNS[2], 0])


def test_penalties_are_rewards_of_their_tokens() -> None:
    """Case L8: KL at a masked token is none. With lambda 1 and values 0 the return is what is still to come."""
    sample = a_sample([True, False, True])
    found = critic_estimates([sample], [1.0], [np.zeros(3)], lam=1.0, penalties={sample.key: np.array([0.1, 9.0, 0.3])})
    assert found.returns[0].tolist() == pytest.approx([0.6, 0.0, 0.7])


def test_what_does_not_pair_up_is_refused() -> None:
    sample = a_sample([True] * 3)
    for rewards, values in (([1.0], [VALUES[:2]]), ([1.0, 2.0], [VALUES]), ([1.0], [])):
        with pytest.raises(ValueError, match="a reward per sample and a value per token"):
            critic_estimates([sample], rewards, values)
    assert critic_estimates([], [], []).samples == ()
