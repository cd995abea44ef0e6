import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from farflung.rl.types import Batch, RolloutGroup
from farflung.trainer.checkpoint import Checkpoint, Progress
from farflung.trainer.learner import Learner
from farflung.trainer.policy import Policy
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Manifest, Publication
from tiny_pool import batch_of, pool_spec, reserved, sampled_groups, tiny_policy, trainer_config

POOL = pool_spec()


def a_learner(**changes: Any) -> Learner:
    return Learner(tiny_policy(), trainer_config(**changes), POOL, reserved())


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([value.flatten() for value in policy.masters_state().values()])


def a_batch(slot: int = 0, rewards: tuple[float, ...] | None = None, *, version: int = 0, at: int = 0) -> Batch:
    """One slot of two groups, sampled with the fresh policy."""
    groups = sampled_groups(tiny_policy(), POOL, slot=slot, version=version)
    return batch_of([_with(group, rewards) for group in groups], version=at)


def _with(group: RolloutGroup, rewards: tuple[float, ...] | None) -> RolloutGroup:
    return group if rewards is None else replace(group, rewards=rewards, correct=rewards)


def checkpoint_of(learner: Learner) -> Checkpoint:
    digest = sha256_hex(b"x")
    manifest = Manifest(
        pool_digest=digest,
        policy_version=0,
        policy_digest=digest,
        optimizer_step=0,
        files=(),
        tensors=(),
        published_at_ms=0,
        expires_at_ms=0,
    )
    return Checkpoint(
        progress=Progress(
            pool_digest=digest,
            policy_version=0,
            optimizer_step=learner.optimizer_step,
            initial_accuracy=0.0,
            best_accuracy=0.0,
            tokens_trained=learner.tokens_trained,
            dropped_groups=dict(learner.dropped_groups),
            buffer={},
        ),
        publication=Publication(manifest=manifest),
        masters=learner.policy.masters_state(),
        optimizer={name: value.clone() for name, value in learner.policy.optimizer_state().items()},
    )


def test_a_step_counts_only_once_it_is_kept() -> None:
    learner, batch = a_learner(), a_batch()
    step = learner.learn(batch)
    assert step.is_applied
    assert step.num_loss_tokens == batch.num_tokens
    assert (learner.optimizer_step, learner.tokens_trained) == (1, 0)
    learner.keep(step)
    assert learner.tokens_trained == batch.num_tokens
    learner.keep(learner.learn(a_batch(1, (1.0, 1.0, 1.0, 1.0))))
    assert learner.dropped_groups == {"no_signal": 2}


def test_a_batch_without_any_signal_leaves_the_weights_alone_but_is_applied() -> None:
    learner = a_learner(optimizer={"weight_decay": 0.1})
    before = weights(learner.policy)
    step = learner.learn(a_batch(rewards=(1.0, 1.0, 1.0, 1.0)))
    assert step.is_applied
    assert (learner.optimizer_step, step.num_loss_tokens) == (0, 0)
    assert torch.equal(weights(learner.policy), before)
    assert step.metrics["frac_reward_zero_std"] == 1.0
    assert "grad_norm" not in step.metrics
    assert step.metrics["num_tokens"] == 0


def test_the_learning_rate_follows_the_optimizer_steps_not_the_batches() -> None:
    learner = a_learner(optimizer={"lr": 1.0, "warmup_steps": 4}, max_versions=1000)
    first = learner.learn(a_batch(0))
    learner.learn(a_batch(1, (1.0, 1.0, 1.0, 1.0)))
    second = learner.learn(a_batch(2))
    assert first.metrics["learning_rate"] == 0.25
    assert second.metrics["learning_rate"] == pytest.approx(0.5)


def test_a_step_that_is_not_finite_is_not_applied_and_says_so() -> None:
    learner = a_learner()
    before = weights(learner.policy)
    with torch.no_grad():
        learner.policy.published.norm.weight[0] = torch.nan
    step = learner.learn(a_batch())
    assert not step.is_applied
    assert math.isnan(step.metrics["grad_norm"])
    assert learner.optimizer_step == 0
    assert torch.equal(weights(learner.policy), before)


def test_spoilt_weights_are_not_applied_and_going_back_mends_them() -> None:
    learner = a_learner()
    good, before = checkpoint_of(learner), weights(learner.policy)
    with torch.no_grad():
        learner.policy.masters.norm.weight[0] = torch.finfo(torch.float32).max  # infinite in bf16
    step = learner.learn(a_batch())
    assert not step.is_applied
    assert not learner.policy.is_finite()
    learner.go_back(good)
    assert torch.equal(weights(learner.policy), before)
    assert learner.policy.is_finite()


def test_a_gradient_of_zero_is_reported_as_zero() -> None:
    """Every token is out of the band of weights, so nothing is learned from any."""
    learner = a_learner()
    groups = sampled_groups(tiny_policy(), POOL)
    strange = [
        replace(group, rollouts=tuple(replace(rollout, logprobs=rollout.logprobs - 9) for rollout in group.rollouts))
        for group in groups
    ]
    step = learner.learn(batch_of(strange))
    assert step.metrics["grad_norm"] == 0.0
    assert step.metrics["is_masked"] == 1.0


def test_going_back_restores_weights_moments_and_step_but_not_the_counts() -> None:
    learner = a_learner()
    learner.keep(learner.learn(a_batch(0)))
    good, before = checkpoint_of(learner), weights(learner.policy)
    tokens = learner.tokens_trained
    learner.keep(learner.learn(a_batch(1)))
    learner.go_back(good)
    assert torch.equal(weights(learner.policy), before)
    assert learner.optimizer_step == 1
    assert learner.tokens_trained > tokens


def test_a_resumed_learner_is_the_one_that_was_saved() -> None:
    learner = a_learner()
    learner.keep(learner.learn(a_batch(0)))
    learner.keep(learner.learn(a_batch(1, (0.0, 0.0, 0.0, 0.0))))
    resumed = a_learner()
    resumed.resume(checkpoint_of(learner))
    assert (resumed.optimizer_step, resumed.tokens_trained) == (1, learner.tokens_trained)
    assert resumed.dropped_groups == {"no_signal": 2}
    for each in (learner, resumed):
        each.learn(a_batch(2))
    assert torch.equal(weights(resumed.policy), weights(learner.policy))


def test_metrics_of_a_batch_by_hand() -> None:
    groups = [
        replace(group, rewards=rewards, correct=correct)
        for group, rewards, correct in zip(
            sampled_groups(tiny_policy(), POOL, version=3),
            [(0.0, 1.0, 2.0, 5.0), (1.0, 1.0, 1.0, 1.0)],
            [(0.0, 1.0, 1.0, 0.0), (1.0, None, 1.0, 1.0)],
            strict=True,
        )
    ]
    lengths = [len(rollout.completion_tokens) for group in groups for rollout in group.rollouts]
    metrics = a_learner().learn(batch_of(groups, version=4)).metrics
    assert metrics["reward/mean"] == 1.5
    assert metrics["reward/std"] == pytest.approx((sum((r - 1.5) ** 2 for r in (0, 1, 2, 5, 1, 1, 1, 1)) / 8) ** 0.5)
    assert metrics["correct/mean"] == pytest.approx(5 / 7)
    assert metrics["frac_reward_zero_std"] == 0.5
    assert metrics["completions/mean_length"] == sum(lengths) / 8
    assert metrics["completions/max_length"] == max(lengths)
    assert (metrics["staleness/mean"], metrics["staleness/max"]) == (1.0, 1.0)
    assert (metrics["num_groups"], metrics["completions/num_tokens"]) == (2.0, sum(lengths))
    assert metrics["num_tokens"] == sum(lengths[:4])  # those that carried a gradient


def test_at_learning_rate_0_the_difference_to_the_sampler_stays_what_it_is() -> None:
    """Case T18: twenty versions, each sampled from the weights that the version before published."""
    learner = a_learner(optimizer={"lr": 0.0}, max_versions=20)
    differences = []
    for version in range(20):
        batch = batch_of(sampled_groups(learner.policy, POOL, version=version), version=version)
        step = learner.learn(batch)
        learner.keep(step)
        differences.append(step.metrics["sampling/sampling_logp_difference/max"])
    assert learner.optimizer_step == 20
    assert differences == [differences[0]] * 20
    assert differences[0] < 1e-5
