import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from farflung.rl.batch import count_loss_tokens, flatten
from farflung.rl.samples import training_samples
from farflung.rl.types import TrainingSample
from farflung.trainer import forward
from farflung.trainer.policy import Policy
from farflung.trainer.step import StepParams, StepResult, completion_logprobs, train_step
from tiny_pool import pool_spec, sampled_groups, step_params, tiny_policy

LR = 1e-2


def params(micro_batch_tokens: int = 4096) -> StepParams:
    return step_params(micro_batch_tokens=micro_batch_tokens, max_grad_norm=1e9)


def samples(policy: Policy, num_slots: int = 2) -> list[TrainingSample]:
    groups = [group for slot in range(num_slots) for group in sampled_groups(policy, pool_spec(), slot=slot)]
    return training_samples(groups)


def stepped(batch: Sequence[TrainingSample], how: StepParams, lr: float = LR) -> tuple[Policy, StepResult]:
    policy = tiny_policy()
    return policy, train_step(policy, batch, how, lr)


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([value.flatten() for value in policy.masters_state().values()])


@pytest.mark.parametrize("micro_batch_tokens", [5, 11, 40])
def test_the_weights_after_a_step_do_not_depend_on_how_it_is_cut(micro_batch_tokens: int) -> None:
    """Case L3. N counts the whole step's tokens, so every cut gives the same sum of gradients."""
    batch = samples(tiny_policy())
    whole, whole_result = stepped(batch, params())
    cut, cut_result = stepped(batch, params(micro_batch_tokens))
    torch.testing.assert_close(weights(cut), weights(whole), rtol=0, atol=2e-6)
    assert (weights(whole) - weights(tiny_policy())).abs().max() > LR / 2
    assert cut_result.grad_norm == pytest.approx(whole_result.grad_norm, rel=1e-5)
    assert cut_result.num_loss_tokens == whole_result.num_loss_tokens == count_loss_tokens(batch)
    for name, value in whole_result.metrics.items():
        assert cut_result.metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_the_normaliser_is_the_tokens_of_the_whole_step() -> None:
    """Twice the same samples: the gradient is the same, though there are twice as many tokens and micro-batches."""
    batch = samples(tiny_policy())
    _, once = stepped(batch, params(8), lr=0.0)
    _, twice = stepped([*batch, *batch], params(8), lr=0.0)
    assert twice.num_loss_tokens == 2 * once.num_loss_tokens
    assert twice.grad_norm == pytest.approx(once.grad_norm, rel=1e-5)
    assert once.grad_norm is not None
    assert once.grad_norm > 0.01


def test_a_step_makes_the_better_rollouts_likelier_and_the_worse_ones_rarer() -> None:
    policy = tiny_policy()
    batch = samples(policy)
    flat = flatten(batch)
    train_step(policy, batch, params(), LR)
    with torch.no_grad():
        after_M, _ = completion_logprobs(policy, flat, params())
    change_M = after_M - flat.behaviour_logprobs_M
    assert (change_M * flat.advantages_M).mean() > 0


def test_two_logprob_passes_over_the_same_tokens_are_equal() -> None:
    """Case L18."""
    policy = tiny_policy()
    flat = flatten(samples(policy))
    first = completion_logprobs(policy, flat, params())
    second = completion_logprobs(policy, flat, params())
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_at_staleness_zero_every_ratio_is_one_and_nothing_is_clipped() -> None:
    policy = tiny_policy()
    result = train_step(policy, samples(policy), params(), lr=0.0)
    assert result.metrics["ratio/mean"] == 1.0
    assert result.metrics["clip_ratio/region_mean"] == 0.0
    assert result.metrics["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-5)
    assert result.metrics["is_masked"] == 0.0


def test_only_the_completion_is_learned_from() -> None:
    """A prompt token gets its gradient through attention, but never a loss of its own: N counts completions."""
    policy = tiny_policy()
    batch = samples(policy)
    assert count_loss_tokens(batch) == sum(len(sample.tokens) - sample.num_prompt_tokens for sample in batch)
    masked = [replace(sample, loss_mask=np.zeros_like(sample.loss_mask)) for sample in batch[:-1]]
    alone, _ = stepped(batch[-1:], params())
    among, _ = stepped([*masked, batch[-1]], params())
    torch.testing.assert_close(weights(among), weights(alone), rtol=0, atol=1e-6)


def test_a_step_without_samples_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        train_step(tiny_policy(), [], params(), LR)


def test_a_gradient_that_is_not_finite_is_not_applied() -> None:
    policy = tiny_policy()
    batch = samples(policy)
    poisoned = [replace(batch[0], advantages=np.full_like(batch[0].advantages, np.inf)), *batch[1:]]
    before = weights(policy)
    result = train_step(policy, poisoned, params(), LR)
    assert (result.is_applied, result.grad_norm) == (False, None)
    assert torch.equal(weights(policy), before)
    again, honest = train_step(policy, batch, params(), LR), stepped(batch, params())[1]
    assert again.is_applied
    assert again.grad_norm == honest.grad_norm  # nothing of the refused gradient is left


def test_weights_that_are_not_finite_are_not_applied_either() -> None:
    policy = tiny_policy()
    result = train_step(policy, samples(policy), params(), lr=float("inf"))
    assert result.grad_norm is not None
    assert not result.is_applied


def test_the_graph_of_a_micro_batch_is_gone_when_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case M1: peak memory does not grow with the number of micro-batches."""
    alive: list[int] = []
    seen: list[object] = []
    original = forward.token_logprobs

    def watched(*args: object, **rest: object) -> object:
        alive.append(sum(reference() is not None for reference in seen))  # type: ignore[operator]
        outputs = original(*args, **rest)  # type: ignore[arg-type]
        seen.append(weakref.ref(outputs[0].grad_fn))
        return outputs

    monkeypatch.setattr(forward, "token_logprobs", watched)
    policy = tiny_policy()
    train_step(policy, samples(policy), params(micro_batch_tokens=8), LR)
    assert len(alive) > 5
    assert max(alive) <= 1
