import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from farflung.rl.estimators import Estimator
from farflung.rl.samples import training_samples
from farflung.rl.types import RolloutGroup, TrainingSample, Turn
from farflung.wire.rollout import Rollout, StopReason


def a_rollout(sample: int, length: int, stop_reason: StopReason = StopReason.EOS, version: int = 3) -> Rollout:
    return Rollout(
        env="toy",
        task_id="7",
        group=1,
        sample=sample,
        prompt_tokens=np.array([5, 6, 7], dtype=np.int32),
        completion_tokens=np.arange(10, 10 + length, dtype=np.int32),
        logprobs=-np.arange(1, 1 + length, dtype=np.float32),
        stop_reason=stop_reason,
        policy_version=version,
    )


def a_group(rewards: list[float | None], rollouts: list[Rollout] | None = None) -> RolloutGroup:
    rollouts = rollouts or [a_rollout(sample, sample + 1) for sample in range(len(rewards))]
    return RolloutGroup(
        slot=4, group=1, task_id="7", rollouts=tuple(rollouts), rewards=tuple(rewards), correct=tuple(rewards)
    )


def test_a_sample_is_prompt_and_completion_with_the_advantage_of_its_rollout() -> None:
    _, second = training_samples([a_group([1.0, 0.0])])
    assert second.tokens.tolist() == [5, 6, 7, 10, 11]
    assert second.tokens.dtype == np.int32
    assert second.num_prompt_tokens == 3
    assert second.behaviour_logprobs.tolist() == [-1.0, -2.0]
    assert second.advantages.tolist() == [-0.5, -0.5]
    assert second.loss_mask.tolist() == [True, True]
    assert (second.policy_version, second.slot, second.group, second.sample) == (3, 4, 1, 1)
    assert (second.num_completion_tokens, second.num_forward_tokens, second.num_loss_tokens) == (2, 4, 2)


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_rollout_without_a_reward_makes_no_sample(missing: float | None) -> None:
    samples = training_samples([a_group([1.0, missing, 0.0])])
    assert [(sample.sample, sample.advantages[0]) for sample in samples] == [(0, 0.5), (2, -0.5)]


def test_truncated_rollouts_can_be_masked_and_still_count_in_the_mean() -> None:
    group = a_group([1.0, 0.0], [a_rollout(0, 2), a_rollout(1, 9, StopReason.LENGTH)])
    assert [sample.sample for sample in training_samples([group])] == [0, 1]
    masked = training_samples([group], mask_truncated=True)
    assert [(sample.sample, sample.advantages[0]) for sample in masked] == [(0, 0.5)]


def test_no_groups_make_no_samples() -> None:
    assert training_samples([], normalize="batch_std") == []


def test_a_group_mixing_versions_is_refused() -> None:
    with pytest.raises(ValueError, match="mixes policy versions"):
        a_group([1.0, 0.0], [a_rollout(0, 1, version=3), a_rollout(1, 1, version=4)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_prompt_tokens": 0}, "prompt and completion need one"),
        ({"num_prompt_tokens": 4}, "prompt and completion need one"),
        ({"loss_mask": np.ones(2, dtype=np.bool_)}, "must pair up"),
        ({"advantages": np.ones(2, dtype=np.float32)}, "must pair up"),
        ({"behaviour_logprobs": np.zeros(2, dtype=np.float32)}, "must pair up"),
    ],
)
def test_a_sample_whose_parts_do_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    sample: TrainingSample = training_samples([a_group([1.0, 0.0])])[0]
    with pytest.raises(ValueError, match=message):
        replace(sample, **change)


def test_a_sample_knows_the_expectation_of_its_group() -> None:
    """Mean logprobs -1, -1.5 and -2: q = exp of those, E = sum q^2 / sum q over the rollouts that are learned from."""
    rollouts = [a_rollout(0, 1), a_rollout(1, 2), a_rollout(2, 3, StopReason.LENGTH)]
    q = [math.exp(-1.0), math.exp(-1.5), math.exp(-2.0)]
    samples = training_samples([a_group([1.0, 0.0, 0.0], rollouts)])
    expected = math.log(sum(x * x for x in q) / sum(q))
    assert [sample.group_log_expectation for sample in samples] == pytest.approx([expected] * 3)
    (first, _) = training_samples([a_group([1.0, 0.0, 0.0], rollouts)], mask_truncated=True)
    assert first.group_log_expectation == pytest.approx(math.log(sum(x * x for x in q[:2]) / sum(q[:2])))


def test_whitened_advantages_weigh_rollouts_by_the_tokens_that_are_learned_from() -> None:
    """Rewards 1, 0 and 1 with 1, 2 and, masked, 9 tokens: mean 1/3 over three tokens."""
    rollouts = [a_rollout(0, 1), a_rollout(1, 2), a_rollout(2, 9, StopReason.LENGTH)]
    samples = training_samples([a_group([1.0, 0.0, 1.0], rollouts)], normalize="reinforce_pp", mask_truncated=True)
    std = math.sqrt(((2 / 3) ** 2 + 2 * (1 / 3) ** 2) / 2)
    assert [sample.advantages[0] for sample in samples] == pytest.approx([2 / 3 / std, -1 / 3 / std])


def kl_penalties(*values: list[float]) -> dict[tuple[int, int, int], np.ndarray]:
    return {(4, 1, sample): np.array(each) for sample, each in enumerate(values)}


def test_kl_in_the_reward_lowers_the_reward_that_is_compared_in_the_group() -> None:
    """1 - 0.1 and 0 - 0.2 - 0.3: mean 0.2."""
    samples = training_samples([a_group([1.0, 0.0])], penalties=kl_penalties([0.1], [0.2, 0.3]))
    assert [sample.advantages.tolist() for sample in samples] == [pytest.approx([0.7]), pytest.approx([-0.7, -0.7])]


@pytest.mark.parametrize(("normalize", "baseline"), [("reinforce_pp", 0.0), ("reinforce_pp_baseline", 0.5)])
def test_kl_in_the_reward_is_a_return_at_each_token_and_whitened_over_the_step(
    normalize: Estimator, baseline: float
) -> None:
    samples = training_samples([a_group([1.0, 0.0])], normalize=normalize, penalties=kl_penalties([0.1], [0.2, 0.3]))
    returns = np.array([1 - 0.1, 0 - 0.5, 0 - 0.3]) - baseline
    expected = (returns - returns.mean()) / returns.std(ddof=1)
    assert np.concatenate([sample.advantages for sample in samples]) == pytest.approx(expected, rel=1e-6)
    assert np.concatenate([sample.advantages for sample in samples]).mean() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("normalize", get_args(Estimator))
def test_kl_of_masked_tokens_does_not_enter_returns(normalize: Estimator) -> None:
    """Case L8: a tool's output between two turns, with any KL whatever."""
    turns = ((Turn(start=0, end=1, reward=0.0), Turn(start=2, end=3, reward=1.0)), (Turn(start=0, end=1, reward=0.0),))
    group = replace(a_group([1.0, 0.0], [a_rollout(0, 3), a_rollout(1, 1)]), turns=turns)
    found = [
        training_samples([group], normalize=normalize, penalties=kl_penalties([0.1, of_tool, 0.2], [0.3]))
        for of_tool in (0.0, 50.0)
    ]
    first, second = [[sample.advantages.tolist() for sample in samples] for samples in found]
    assert first == second
    assert found[1][0].advantages[1] == 0.0
    assert found[1][0].loss_mask.tolist() == [True, False, True]
