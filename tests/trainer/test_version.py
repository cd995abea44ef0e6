"""Several optimizer steps per version, and a step that is shared among ranks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.metrics import reduce_metrics
from farflung.rl.minibatches import minibatches
from farflung.rl.objectives import Objective
from farflung.rl.samples import training_samples
from farflung.rl.types import TrainingSample
from farflung.trainer.learner import Learner
from farflung.trainer.policy import Policy
from farflung.trainer.step import (
    OptimizerStep,
    StepParams,
    accumulate,
    completion_logprobs,
    prepare,
    train_step,
    train_version,
)
from tiny_pool import batch_of, pool_spec, reserved, sampled_groups, step_params, tiny_policy, trainer_config

LR = 1e-2


def samples(num_slots: int = 2) -> list[TrainingSample]:
    policy = tiny_policy()
    groups = [group for slot in range(num_slots) for group in sampled_groups(policy, pool_spec(), slot=slot)]
    return training_samples(groups)


def weights(policy: Policy) -> Tensor:
    return torch.cat([value.flatten() for value in policy.masters_state().values()])


def spying(params: StepParams, look: Callable[[LossInputs, int], None]) -> StepParams:
    def function(inputs: LossInputs, inner: object, num_loss_tokens: int) -> LossOutputs:
        look(inputs, num_loss_tokens)
        return params.objective.function(inputs, inner, num_loss_tokens)

    return replace(params, objective=Objective(function=function, params=params.objective.params))


def trained(batch: Sequence[TrainingSample], params: StepParams, num_steps: int, *, seed: int = 5) -> Policy:
    policy = tiny_policy()
    train_version(policy, batch, params, lambda _: LR, num_steps=num_steps, seed=seed)
    return policy


def test_two_steps_are_two_steps_on_the_halves_of_the_samples() -> None:
    """With the behaviour policy as anchor nothing connects them but the weights."""
    made = step_params(micro_batch_tokens=11)
    objective = replace(made.objective, params=replace(made.objective.params, anchor="behaviour"))
    params, batch = replace(made, objective=objective), samples()
    by_hand = tiny_policy()
    for part in minibatches(batch, 2, 5):
        train_step(by_hand, part, params, LR)
    assert torch.equal(weights(trained(batch, params, 2)), weights(by_hand))


def test_the_clip_stays_centred_on_the_policy_at_the_start_of_the_version() -> None:
    policy, batch, params = tiny_policy(), samples(), step_params()
    parts = minibatches(batch, 3, 5)
    expected = [completion_logprobs(policy, step.micro_batches[0], params)[0] for step in map(prepared, parts)]
    seen: list[LossInputs] = []
    result = train_version(
        policy, batch, spying(params, lambda inputs, _: seen.append(inputs)), lambda _: LR, num_steps=3, seed=5
    )
    assert result.num_steps == len(seen) == 3
    assert seen[0].prox_logprobs_N is None  # the weights have not moved yet
    for inputs, before in zip(seen[1:], expected[1:], strict=True):
        assert inputs.prox_logprobs_N is not None
        assert torch.equal(inputs.prox_logprobs_N, before)
        assert not inputs.prox_logprobs_N.requires_grad
        assert (inputs.trainer_logprobs_N - before).abs().max() > 1e-4
    assert result.metrics["ratio/mean"] != 1.0


def prepared(part: Sequence[TrainingSample]) -> OptimizerStep:
    return prepare(part, step_params())


def test_one_step_computes_no_logprobs_beforehand() -> None:
    seen: list[LossInputs] = []
    train_version(tiny_policy(), samples(), spying(step_params(), lambda i, _: seen.append(i)), lambda _: LR)
    assert [inputs.prox_logprobs_N for inputs in seen] == [None]


def test_every_step_counts_its_own_tokens_over_all_its_micro_batches() -> None:
    counts: list[int] = []
    params = spying(step_params(micro_batch_tokens=11), lambda _, count: counts.append(count))
    batch = samples()
    result = train_version(tiny_policy(), batch, params, lambda _: LR, num_steps=2, seed=5)
    steps = [prepare(part, params) for part in minibatches(batch, 2, 5)]
    expected = [step.num_loss_tokens for step in steps]
    assert counts == [step.num_loss_tokens for step in steps for _ in step.micro_batches]
    assert len(counts) > 4
    assert result.num_loss_tokens == sum(expected) == result.metrics["num_tokens"]


def test_each_step_has_its_learning_rate() -> None:
    asked: list[int] = []

    def rate(number: int) -> float:
        asked.append(number)
        return 0.0

    train_version(tiny_policy(), samples(), step_params(), rate, num_steps=3)
    assert asked == [0, 1, 2]


def test_the_loss_is_the_mean_over_the_steps() -> None:
    """At learning rate 0 and with equal halves each step has the loss of the whole."""
    half = samples(1)
    batch = [sample for sample in half for _ in range(2)]
    once = train_step(tiny_policy(), half, step_params(), 0.0)

    policy = tiny_policy()
    losses = [train_step(policy, part, step_params(), 0.0).metrics["policy_loss"] for part in minibatches(batch, 2, 0)]
    both = train_version(tiny_policy(), batch, step_params(), lambda _: 0.0, num_steps=2, seed=0)
    assert both.metrics["policy_loss"] == pytest.approx(sum(losses) / 2, abs=1e-6)
    assert both.metrics["entropy"] == pytest.approx(once.metrics["entropy"], rel=1e-5)


def test_parts_without_a_loss_token_are_no_steps() -> None:
    batch = samples(1)
    masked = [replace(sample, loss_mask=np.zeros_like(sample.loss_mask)) for sample in batch[1:]]
    result = train_version(tiny_policy(), [batch[0], *masked], step_params(), lambda _: LR, num_steps=4)
    assert (result.num_steps, result.is_applied) == (1, True)


def test_a_step_that_is_not_finite_ends_the_version() -> None:
    batch = samples()
    first = minibatches(batch, 3, 5)[1][0]
    poisoned = [
        replace(sample, advantages=np.full_like(sample.advantages, math.inf)) if sample is first else sample
        for sample in batch
    ]
    policy = tiny_policy()
    result = train_version(policy, poisoned, step_params(), lambda _: LR, num_steps=3, seed=5)
    assert (result.is_applied, result.grad_norm, result.num_steps) == (False, None, 1)


def test_steps_of_a_version_are_repeated_bit_for_bit() -> None:
    batch = samples()
    assert torch.equal(weights(trained(batch, step_params(), 3)), weights(trained(batch, step_params(), 3)))
    assert not torch.equal(weights(trained(batch, step_params(), 3, seed=6)), weights(trained(batch, step_params(), 3)))


# -- ranks -------------------------------------------------------------------------------------------------------------


def gradients(policy: Policy) -> list[Tensor]:
    return [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in policy.published.parameters()
    ]


@pytest.mark.parametrize("shares", [(4,), (2, 2), (1, 3), (1, 1, 1, 1), (0, 4), (3, 0, 1)])
def test_ranks_with_their_share_of_the_micro_batches_add_up_to_one_rank(shares: tuple[int, ...]) -> None:
    """L3, L4, L20: counts are of the whole step, so uneven and empty ranks weigh as they should."""
    params, batch = step_params(micro_batch_tokens=11), samples()
    whole = prepare(batch, params)
    assert len(whole.micro_batches) >= 4
    one = tiny_policy()
    metrics = reduce_metrics(accumulate(one, whole, params))
    total, parts, first = [torch.zeros_like(gradient) for gradient in gradients(one)], [], 0
    for number, share in enumerate(shares):
        last = len(whole.micro_batches) if number + 1 == len(shares) else first + share
        rank = tiny_policy()
        parts += accumulate(rank, replace(whole, micro_batches=whole.micro_batches[first:last]), params)
        total = [left + right for left, right in zip(total, gradients(rank), strict=True)]
        first = last
    for gradient, right in zip(total, gradients(one), strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-5, atol=1e-7)
    assert reduce_metrics(parts) == pytest.approx(metrics, rel=1e-6)


def test_two_backward_calls_before_a_step_equal_one() -> None:
    """L4: nothing is lost between calls."""
    params, batch = step_params(), samples()
    whole = prepare(batch, params)
    halves = [replace(prepare(part, params), num_loss_tokens=whole.num_loss_tokens) for part in (batch[:5], batch[5:])]
    merged, split = tiny_policy(), tiny_policy()
    accumulate(merged, whole, params)
    for half in halves:
        accumulate(split, half, params)
    for gradient, right in zip(gradients(split), gradients(merged), strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-5, atol=1e-7)


# -- through the learner -----------------------------------------------------------------------------------------------


def test_the_learner_counts_every_step_and_stretches_its_schedule() -> None:
    config = trainer_config(
        optimizer={"steps_per_version": 4, "schedule": "linear", "warmup_steps": 0, "lr": 1.0}, max_versions=2
    )
    learner = Learner(tiny_policy(), config, pool_spec(), reserved())
    step = learner.learn(batch_of(sampled_groups(tiny_policy(), pool_spec())))
    assert step.is_applied
    assert learner.optimizer_step == 4
    again = learner.learn(batch_of(sampled_groups(tiny_policy(), pool_spec(), slot=1)))
    assert again.metrics["learning_rate"] == 0.5  # 4 of 8 steps


# -- precision ---------------------------------------------------------------------------------------------------------


def test_a_step_in_half_precision_is_roughly_the_same_step() -> None:
    full, half = tiny_policy(), tiny_policy(compute={"dtype": "bfloat16"})
    params, batch = step_params(micro_batch_tokens=11), samples()
    results = [train_step(policy, batch, params, 1e-3) for policy in (full, half)]
    assert results[1].grad_norm == pytest.approx(results[0].grad_norm, rel=0.05)
    moved = weights(full) - weights(tiny_policy())
    agreement = torch.nn.functional.cosine_similarity(moved, weights(half) - weights(tiny_policy()), dim=0)
    assert agreement > 0.9
    assert results[1].metrics["ratio/mean"] == 1.0


def test_recomputed_activations_change_no_bit_of_a_step() -> None:
    kept, recomputed = tiny_policy(), tiny_policy(compute={"activation_checkpointing": True})
    for policy in (kept, recomputed):
        train_step(policy, samples(), step_params(micro_batch_tokens=11), LR)
    assert torch.equal(weights(kept), weights(recomputed))
