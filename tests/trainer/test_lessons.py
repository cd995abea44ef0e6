from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from farflung.rl.types import RolloutGroup
from farflung.trainer.learner import Learner
from farflung.trainer.samples import group_rewards
from farflung.wire.rollout import StopReason
from tiny_pool import batch_of, pool_spec, reserved, sampled_groups, tiny_policy, trainer_config

POOL = pool_spec()


def a_learner(**changes: Any) -> Learner:
    return Learner(tiny_policy(), trainer_config(**changes), POOL, reserved())


def groups_with(rewards: tuple[float, ...], *, lengths: tuple[int, ...] = (3, 2, 1, 3), target: int = 0) -> Any:
    """Two groups of four rollouts cut to these lengths; those of three tokens hit the pool's limit."""
    return [_cut(group, rewards, lengths, target) for group in sampled_groups(tiny_policy(), POOL)]


def _cut(group: RolloutGroup, rewards: tuple[float, ...], lengths: tuple[int, ...], target: int) -> RolloutGroup:
    rollouts = tuple(
        replace(
            rollout,
            completion_tokens=np.resize(rollout.completion_tokens, length),
            logprobs=np.resize(rollout.logprobs, length),
            stop_reason=StopReason.LENGTH if length == 3 else StopReason.EOS,
            target_length=target,
        )
        for rollout, length in zip(group.rollouts, lengths, strict=True)
    )
    return replace(group, rollouts=rollouts, rewards=rewards, correct=rewards)


# -- shaping ------------------------------------------------------------------------------------------------------


def test_a_group_that_is_told_apart_by_shaping_alone_has_no_signal() -> None:
    """Case L17, with every kind of shaping at once."""
    shaping = {"length": "exact", "length_alpha": 0.1, "overlong_buffer_tokens": 2}
    step = a_learner(shaping=shaping).learn(batch_of(groups_with((1.0,) * 4, target=2)))
    assert step.training.dropped_groups == {"no_signal": 2}
    assert step.metrics["frac_reward_zero_std"] == 1.0
    assert step.metrics["reward/shaped_std"] > 0


def test_an_environment_without_an_unshaped_reward_is_judged_on_its_own() -> None:
    """Case L17: what the trainer adds is no signal there either."""
    groups = [replace(group, correct=(None,) * 4) for group in groups_with((1.0,) * 4, target=2)]
    step = a_learner(shaping={"length": "clip", "overlong_buffer_tokens": 2}).learn(batch_of(groups))
    assert step.training.dropped_groups == {"no_signal": 2}


def test_where_length_is_an_objective_it_is_signal_and_a_punishment_never_is() -> None:
    aimed = {"shaping": {"length": "exact", "length_alpha": 0.1}, "objective": {"signal": "total"}}
    step = a_learner(**aimed).learn(batch_of(groups_with((1.0,) * 4, target=2)))
    rewards = np.array([0.9, 1.0, 0.9, 0.9])
    assert [sample.advantages[0] for sample in step.training.samples[:4]] == pytest.approx(rewards - rewards.mean())
    punished = {"shaping": {"overlong_buffer_tokens": 2}, "objective": {"signal": "total"}}
    assert not a_learner(**punished).learn(batch_of(groups_with((1.0,) * 4))).training.samples


def test_the_logged_shaped_reward_is_what_the_advantages_were_made_of() -> None:
    """Case L11: rewards 0, 1, 0, 1 of lengths 3, 2, 1, 3; the limit 3 with a buffer of 2 costs 1, 0.5, 0, 1."""
    learner = a_learner(shaping={"overlong_buffer_tokens": 2})
    step = learner.learn(batch_of(groups_with((0.0, 1.0, 0.0, 1.0))))
    shaped = np.array([-1.0, 0.5, 0.0, 0.0])
    assert step.metrics["reward/mean"] == 0.5
    assert step.metrics["reward/shaped_mean"] == pytest.approx(shaped.mean())
    assert step.metrics["reward/shaped_std"] == pytest.approx(shaped.std())
    assert step.metrics["reward/shaping_mean"] == pytest.approx(shaped.mean() - 0.5)
    found = [sample.advantages[0] for sample in step.training.samples[:4]]
    assert found == pytest.approx(shaped - shaped.mean())


def test_without_shaping_there_is_one_reward() -> None:
    groups = groups_with((0.0, 1.0, 0.0, 1.0))
    step = a_learner().learn(batch_of(groups))
    assert step.metrics["reward/mean"] == np.mean(group_rewards(groups)[0])
    assert not [name for name in step.metrics if "shap" in name]


# -- figures of lengths -------------------------------------------------------------------------------------------


def test_lengths_of_terminated_completions_stand_beside_all() -> None:
    """Case T16: of what is trained on, never above the pool's limit."""
    metrics = a_learner().learn(batch_of(groups_with((0.0, 1.0, 0.0, 1.0)))).metrics
    lengths = {name: value for name, value in metrics.items() if "length" in name}
    assert lengths == {
        "completions/mean_length": 9 / 4,
        "completions/min_length": 1,
        "completions/max_length": POOL.max_completion_tokens,
        "completions/mean_terminated_length": 1.5,
        "completions/min_terminated_length": 1,
        "completions/max_terminated_length": 2,
    }
    assert metrics["completions/clipped_ratio"] == 0.5
    assert metrics["completions/masked_ratio"] == 0


def test_masked_tokens_are_a_share_of_those_with_signal() -> None:
    learner = a_learner(objective={"mask_truncated": True})
    metrics = learner.learn(batch_of(groups_with((0.0, 1.0, 0.0, 1.0)))).metrics
    assert metrics["completions/masked_ratio"] == pytest.approx(6 / 9)
    assert metrics["num_tokens"] == 2 * 3


def test_a_batch_in_which_nothing_ended_has_no_terminated_lengths() -> None:
    metrics = a_learner().learn(batch_of(groups_with((0.0, 1.0, 0.0, 1.0), lengths=(3, 3, 3, 3)))).metrics
    assert metrics["completions/clipped_ratio"] == 1.0
    assert not [name for name in metrics if "terminated" in name]


# -- entropy ------------------------------------------------------------------------------------------------------


def test_only_the_share_of_highest_entropy_is_learned_from() -> None:
    groups = sampled_groups(tiny_policy(), POOL)
    everything = a_learner().learn(batch_of(groups))
    some = a_learner(objective={"entropy": {"top_share": 0.3}}).learn(batch_of(groups))
    before = np.concatenate([sample.advantages for sample in everything.training.samples])
    after = np.concatenate([sample.advantages for sample in some.training.samples])
    assert (before != 0).all()
    assert 0.2 < (after != 0).mean() < 0.45
    assert (after[after != 0] == before[after != 0]).all()
    assert some.num_loss_tokens == everything.num_loss_tokens
    assert some.metrics["advantage/positive"] + some.metrics["advantage/negative"] == pytest.approx((after != 0).mean())


def test_an_entropy_bonus_is_steered_to_its_target() -> None:
    """Below the target the coefficient grows; the bonus acts from the second version on, when entropy is known."""
    learner = a_learner(objective={"entropy": {"target": 100.0, "change": 0.25, "form": "exact"}})
    batch = batch_of(sampled_groups(tiny_policy(), POOL))
    shown = []
    for _ in range(3):
        step = learner.learn(batch)
        learner.keep(step)
        shown.append(step.metrics["entropy_coefficient"])
    assert shown == [0.0, 0.25, 0.5]
    assert learner.adaptation.state.entropy == step.metrics["entropy"]
    assert learner.adaptation.state.entropy_coefficient == 0.75


def test_an_entropy_bonus_raises_entropy() -> None:
    """Both forms, over eight versions from the same start, against none."""
    entropies = {}
    for form, coefficient in (("exact", 0.0), ("exact", 1.0), ("sampled", 1.0)):
        learner = a_learner(objective={"entropy": {"coefficient": coefficient, "form": form}}, optimizer={"lr": 5e-3})
        for slot in range(8):
            learner.learn(batch_of(sampled_groups(learner.policy, POOL, slot=slot)))
        groups = sampled_groups(learner.policy, POOL, slot=9)
        entropies[form, coefficient] = learner.learn(batch_of(groups)).metrics["entropy"]
    assert entropies["exact", 1.0] > entropies["exact", 0.0] + 0.02
    assert entropies["sampled", 1.0] > entropies["exact", 0.0]
