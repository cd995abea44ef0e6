import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from farflung.errors import UserError
from farflung.model.weights import load_hf_state, publishable_state, state_to_hf
from farflung.rl.batch import flatten
from farflung.rl.samples import training_samples
from farflung.trainer.policy import Policy
from farflung.trainer.step import completion_logprobs
from tiny_pool import pool_spec, sampled_groups, step_params, tiny_policy


def give_gradient(policy: Policy, value: float = 0.01) -> None:
    for parameter in policy.published.parameters():
        parameter.grad = torch.full_like(parameter, value)


def everything(policy: Policy) -> dict[str, Tensor]:
    return {
        **{f"m/{name}": value.clone() for name, value in policy.masters_state().items()},
        **{f"p/{name}": value for name, value in state_to_hf(policy.published).items()},
        **{f"o/{name}": value.clone() for name, value in policy.optimizer_state().items()},
    }


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


def test_masters_are_float32_and_what_is_published_is_their_bf16_rounding() -> None:
    policy = tiny_policy()
    give_gradient(policy)
    policy.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    masters, published = policy.masters_state(), policy.published_state()
    assert {value.dtype for value in masters.values()} == {torch.float32}
    assert {value.dtype for value in published.values()} == {torch.bfloat16}
    assert_same(published, publishable_state(masters))
    assert any(not torch.equal(masters[name], published[name].float()) for name in masters)


def test_the_forward_pass_runs_on_the_published_weights() -> None:
    policy = tiny_policy()
    give_gradient(policy)
    policy.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    assert_same(state_to_hf(policy.published), {n: v.float() for n, v in policy.published_state().items()})


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_ratio_to_the_sampler_is_one_at_staleness_zero(temperature: float) -> None:
    """Case T2: logits are divided by the temperature on both sides, logprobs never."""
    policy, pool = tiny_policy(), pool_spec(temperature=temperature)
    give_gradient(policy)
    policy.apply_gradient(lr=1e-2, max_grad_norm=1.0)  # masters that bf16 does not hold
    batch = flatten(training_samples(sampled_groups(policy, pool)))
    with torch.no_grad():
        logprobs_M, _ = completion_logprobs(policy, batch, step_params(temperature=temperature))
    ratio_M = (logprobs_M - batch.behaviour_logprobs_M).exp()
    np.testing.assert_allclose(ratio_M.numpy(), 1.0, rtol=1e-5)
    with torch.no_grad():
        other_M, _ = completion_logprobs(policy, batch, step_params(temperature=1.3))
    assert (other_M - batch.behaviour_logprobs_M).abs().max() > 0.01


def test_sampling_from_the_masters_would_not_give_ratio_one() -> None:
    """What bf16 rounding is for: the test above would notice."""
    policy, pool = tiny_policy(), pool_spec()
    give_gradient(policy)
    policy.apply_gradient(lr=1e-2, max_grad_norm=1.0)
    batch = flatten(training_samples(sampled_groups(policy, pool)))
    load_hf_state(policy.published, policy.masters_state())
    with torch.no_grad():
        logprobs_M, _ = completion_logprobs(policy, batch, step_params())
    assert (logprobs_M - batch.behaviour_logprobs_M).exp().sub(1).abs().max() > 1e-5


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_learning_rate_zero_leaves_every_weight_bit_equal(name: str) -> None:
    """Even a zero keeps its sign."""
    policy = tiny_policy(optimizer={"name": name, "weight_decay": 0.1})
    with torch.no_grad():
        for parameter in policy.masters.parameters():
            parameter.view(-1)[0] = -0.0
    policy.round_masters()
    before = everything(policy)
    for _ in range(3):
        give_gradient(policy)
        policy.apply_gradient(lr=0.0, max_grad_norm=1.0)
    after = everything(policy)
    assert_same(before, {name: value for name, value in after.items() if not name.startswith("o/")})
    assert all(torch.equal(value.signbit(), after[name].signbit()) for name, value in before.items())
    assert any(name.startswith("o/") for name in after)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(value: float) -> None:
    policy = tiny_policy(optimizer={"weight_decay": 0.1})
    give_gradient(policy)
    policy.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    before = everything(policy)
    give_gradient(policy)
    last = list(policy.published.parameters())[-1]
    assert last.grad is not None
    last.grad.view(-1)[-1] = value
    assert policy.apply_gradient(lr=1e-3, max_grad_norm=1.0) is None
    assert_same(before, everything(policy))
    assert all(parameter.grad is None for parameter in policy.published.parameters())
    assert all(parameter.grad is None for parameter in policy.masters.parameters())
    assert policy.is_finite()


def test_the_gradient_is_consumed_by_the_step() -> None:
    policy = tiny_policy()
    give_gradient(policy)
    assert policy.apply_gradient(lr=1e-3, max_grad_norm=1.0) is not None
    before = everything(policy)
    assert policy.apply_gradient(lr=1e-3, max_grad_norm=1.0) == 0.0
    assert_same(before, everything(policy))


def test_the_norm_is_that_before_clipping() -> None:
    policy = tiny_policy()
    give_gradient(policy, 0.5)
    num_weights = sum(parameter.numel() for parameter in policy.published.parameters())
    norm = policy.apply_gradient(lr=0.0, max_grad_norm=1.0)
    assert norm == pytest.approx(0.5 * num_weights**0.5, rel=1e-5)
    first_moment = next(v for name, v in policy.optimizer_state().items() if name.startswith("exp_avg/"))
    clipped = 0.5 / norm
    assert first_moment.flatten()[0] == pytest.approx(0.1 * clipped, rel=1e-3)


def test_the_first_adam_step_by_hand() -> None:
    """First step: m / (1 - b1) = g and v / (1 - b2) = g^2, so every weight moves by lr * sign(g) (and eps is small)."""
    policy = tiny_policy()
    before = policy.masters_state()
    give_gradient(policy, -0.01)
    policy.apply_gradient(lr=1e-3, max_grad_norm=1e9)
    for name, value in policy.masters_state().items():
        torch.testing.assert_close(value, before[name] + 1e-3, rtol=1e-4, atol=1e-6)


def test_weight_decay_reaches_matrices_and_nothing_else() -> None:
    """theta <- theta (1 - lr * decay): with gradients of zero nothing else moves."""
    policy = tiny_policy(optimizer={"weight_decay": 0.1})
    before = policy.masters_state()
    give_gradient(policy, 0.0)
    policy.apply_gradient(lr=0.5, max_grad_norm=1.0)
    for name, value in policy.masters_state().items():
        factor = 1.0 if value.ndim < 2 else 0.95
        torch.testing.assert_close(value, before[name] * factor, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_restored_policy_takes_the_next_step_bit_for_bit(name: str) -> None:
    policy = tiny_policy(optimizer={"name": name, "weight_decay": 0.1})
    for value in (0.01, -0.02, 0.005):
        give_gradient(policy, value)
        policy.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    masters, optimizer = policy.masters_state(), {n: v.clone() for n, v in policy.optimizer_state().items()}
    other = tiny_policy(seed=99, optimizer={"name": name, "weight_decay": 0.1})
    other.restore(masters, optimizer)
    assert_same(everything(policy), everything(other))
    for each in (policy, other):
        give_gradient(each, 0.03)
        each.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    assert_same(everything(policy), everything(other))


def test_going_back_to_before_the_first_step_forgets_the_moments() -> None:
    policy, fresh = tiny_policy(), tiny_policy()
    masters, optimizer = policy.masters_state(), policy.optimizer_state()
    assert optimizer == {}
    give_gradient(policy, 0.5)
    policy.apply_gradient(lr=1e-2, max_grad_norm=1.0)
    policy.restore(masters, optimizer)
    for each in (policy, fresh):
        give_gradient(each, 0.03)
        each.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    assert_same(everything(policy), everything(fresh))


def test_what_restore_was_given_does_not_change_with_later_steps() -> None:
    policy = tiny_policy()
    give_gradient(policy)
    policy.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    optimizer = {name: value.clone() for name, value in policy.optimizer_state().items()}
    kept = {name: value.clone() for name, value in optimizer.items()}
    policy.restore(policy.masters_state(), optimizer)
    give_gradient(policy)
    policy.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    assert_same(kept, optimizer)


@settings(max_examples=10)
@given(st.integers(0, 10), st.sampled_from([float("nan"), float("inf"), torch.finfo(torch.float32).max]))
def test_weights_that_are_not_numbers_are_noticed_wherever_they_are(index: int, value: float) -> None:
    policy = tiny_policy()
    assert policy.is_finite()
    parameters = list(policy.masters.parameters())
    with torch.no_grad():
        parameters[index % len(parameters)].view(-1)[-1] = value
    policy.round_masters()
    assert not policy.is_finite()


def half_policy() -> Policy:
    return tiny_policy(compute={"dtype": "bfloat16"})


def test_half_precision_computes_on_exactly_what_is_published_and_keeps_masters_in_float32() -> None:
    policy = half_policy()
    assert {parameter.dtype for parameter in policy.published.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in policy.masters.parameters()} == {torch.float32}
    assert_same(state_to_hf(policy.published), policy.published_state())


def test_gradients_of_micro_batches_add_up_in_float32() -> None:
    """In bf16 1 + 0.001 is 1, however often it is added."""
    policy = half_policy()
    for value in [1.0] + [0.001] * 100:
        give_gradient(policy, value)
        policy.collect_gradient()
    num_weights = sum(parameter.numel() for parameter in policy.masters.parameters())
    norm = policy.apply_gradient(lr=0.0, max_grad_norm=1.0)
    assert norm == pytest.approx(1.1 * num_weights**0.5, rel=1e-3)
    assert policy.apply_gradient(lr=0.0, max_grad_norm=1.0) == 0.0


def test_a_device_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match=r"trainer.compute.device is cuda:99 and this machine has \d+ such devices"):
        tiny_policy(compute={"device": "cuda:99"})
