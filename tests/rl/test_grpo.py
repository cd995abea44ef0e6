import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import reduce_metrics

BEHAVIOUR = GrpoParams(anchor="behaviour")
DECOUPLED = GrpoParams()
ALL_PARAMS = [
    GrpoParams(anchor=anchor, weight_mode=mode) for anchor in ("decoupled", "behaviour") for mode in ("mask", "clip")
]


def vector(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def some_inputs(
    pi: Sequence[float],
    advantages: Sequence[float],
    *,
    mu: Sequence[float] | None = None,
    prox: Sequence[float] | None = None,
    mask: Sequence[bool] | None = None,
    entropy: Sequence[float] | None = None,
) -> LossInputs:
    """Logprobs in float64; mu defaults to 0, prox to pi."""
    return LossInputs(
        trainer_logprobs_N=vector(pi).requires_grad_(),
        prox_logprobs_N=None if prox is None else vector(prox),
        behaviour_logprobs_N=vector(mu or [0.0] * len(pi)),
        advantages_N=vector(advantages),
        loss_mask_N=torch.tensor(mask or [True] * len(pi)),
        entropy_N=None if entropy is None else vector(entropy),
    )


def loss_and_gradient(inputs: LossInputs, params: GrpoParams, num_loss_tokens: int = 1) -> tuple[float, list[float]]:
    loss = grpo_loss(inputs, params, num_loss_tokens).loss
    (gradient,) = torch.autograd.grad(loss, inputs.trainer_logprobs_N)
    return loss.item(), gradient.tolist()


def metrics_of(inputs: LossInputs, params: GrpoParams) -> dict[str, float]:
    return reduce_metrics([grpo_loss(inputs, params, int(inputs.loss_mask_N.sum())).metrics])


# -- values by hand -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "positive", "negative"),
    [
        (0.5, 0.5, -0.8),
        (0.9, 0.9, -0.9),
        (1.0, 1.0, -1.0),
        (1.2, 1.2, -1.2),
        (1.5, 1.28, -1.5),
        (3.0, 1.28, -3.0),
        (6.0, 1.28, -4.0),
    ],
)
@pytest.mark.parametrize("params", [BEHAVIOUR, DECOUPLED], ids=["behaviour", "decoupled"])
def test_the_objective_of_one_token(ratio: float, positive: float, negative: float, params: GrpoParams) -> None:
    """The published table of the two-sided clip: 0.2 / 0.28, delta 4. Both anchors are at logprob 0."""
    for advantage, objective in ((1.0, positive), (-1.0, negative)):
        inputs = some_inputs([math.log(ratio)], [advantage], prox=[0.0])
        loss, (gradient,) = loss_and_gradient(inputs, params)
        assert -loss == pytest.approx(objective)
        # d(ratio)/d(logprob) = ratio while the objective moves with the ratio, 0 where a bound holds it.
        moves = objective == pytest.approx(ratio * advantage)
        assert -gradient == pytest.approx(ratio * advantage if moves else 0.0)


def test_the_decoupled_objective_of_four_tokens_by_hand() -> None:
    inputs = some_inputs(
        pi=[math.log(0.5), math.log(0.6), math.log(0.2), math.log(0.9)],
        prox=[math.log(0.5), math.log(0.4), math.log(0.4), math.log(0.6)],
        mu=[math.log(0.25), math.log(0.5), math.log(0.4), math.log(0.1)],
        advantages=[1.0, 1.0, -2.0, 1.0],
    )
    # w = 2, 0.8, 1, 6 (out of the band);  r = 1, 1.5, 0.5, 1.5
    loss, gradient = loss_and_gradient(inputs, DECOUPLED, num_loss_tokens=4)
    assert loss == pytest.approx(-(2 * 1 + 0.8 * 1.28 + 1 * 0.8 * -2 + 0) / 4)
    assert gradient == pytest.approx([-2 / 4, 0, 0, 0])

    loss, _ = loss_and_gradient(inputs, GrpoParams(weight_mode="clip"), num_loss_tokens=4)
    assert loss == pytest.approx(-(2 * 1 + 0.8 * 1.28 + 1 * 0.8 * -2 + 5 * 1.28) / 4)


def test_the_two_policy_objective_of_three_tokens_by_hand() -> None:
    inputs = some_inputs(
        pi=[math.log(0.5), math.log(0.3), math.log(0.9)],
        prox=[-9.0, -9.0, -9.0],
        mu=[math.log(0.4), math.log(0.6), math.log(0.1)],
        advantages=[1.0, -1.0, -1.0],
    )
    # r = 1.25, 0.5, 9; no weight, prox plays no part
    loss, gradient = loss_and_gradient(inputs, BEHAVIOUR, num_loss_tokens=3)
    assert loss == pytest.approx(-(1.25 - 0.8 - 4.0) / 3)
    assert gradient == pytest.approx([-1.25 / 3, 0, 0])


def test_without_prox_the_trainer_is_its_own_anchor() -> None:
    pi, mu = [-0.5, -1.0], [-0.7, -1.3]
    implicit = loss_and_gradient(some_inputs(pi, [1.0, -1.0], mu=mu), DECOUPLED)
    assert implicit == loss_and_gradient(some_inputs(pi, [1.0, -1.0], mu=mu, prox=pi), DECOUPLED)
    weights = [math.exp(0.2), math.exp(0.3)]
    assert implicit[1] == pytest.approx([-weights[0], weights[1]])


def test_on_policy_the_gradient_is_the_policy_gradient() -> None:
    pi = [-0.5, -1.0, -2.0]
    loss, gradient = loss_and_gradient(some_inputs(pi, [0.6, -0.4, -0.4], mu=pi), DECOUPLED, num_loss_tokens=3)
    assert loss == pytest.approx(0.2 / 3)
    assert gradient == pytest.approx([-0.6 / 3, 0.4 / 3, 0.4 / 3])


# -- gradient -----------------------------------------------------------------------------------------------------

logprob = st.floats(-4, 0)
token = st.tuples(logprob, logprob, logprob, st.floats(-2, 2))


@given(st.lists(token, min_size=1, max_size=6), st.sampled_from(ALL_PARAMS))
def test_the_gradient_is_the_closed_form(tokens: list[tuple[float, float, float, float]], params: GrpoParams) -> None:
    pi, prox, mu, advantages = (list(column) for column in zip(*tokens, strict=True))
    _, gradient = loss_and_gradient(some_inputs(pi, advantages, mu=mu, prox=prox), params, num_loss_tokens=7)
    for measured, token_values in zip(gradient, tokens, strict=True):
        assert measured == pytest.approx(closed_form(*token_values, params) / 7, abs=1e-12)


def closed_form(pi: float, prox: float, mu: float, advantage: float, params: GrpoParams) -> float:
    """d loss / d pi of one token."""
    ratio = math.exp(pi - (prox if params.anchor == "decoupled" else mu))
    weight = math.exp(prox - mu) if params.anchor == "decoupled" else 1.0
    if not params.weight_low <= weight <= params.weight_high:
        weight = 0.0 if params.weight_mode == "mask" else min(max(weight, params.weight_low), params.weight_high)
    held_up = advantage > 0 and ratio > 1 + params.clip_high
    held_down = advantage < 0 and (ratio < 1 - params.clip_low or ratio > params.delta)
    return 0.0 if held_up or held_down else -weight * ratio * advantage


@pytest.mark.parametrize("params", ALL_PARAMS)
def test_autograd_agrees_with_finite_differences(params: GrpoParams) -> None:
    fixed = some_inputs([0.0] * 4, [1.0, -1.0, 0.5, -2.0], mu=[-1.0, -0.4, -2.0, -3.0], prox=[-1.1, -0.6, -1.5, -0.5])

    def loss_of(pi: Tensor) -> Tensor:
        return grpo_loss(replace(fixed, trainer_logprobs_N=pi), params, 4).loss

    pi = vector([-1.05, -0.5, -0.9, -0.45]).requires_grad_()
    assert torch.autograd.gradcheck(loss_of, (pi,))


def test_only_the_trainer_s_logprobs_carry_a_gradient() -> None:
    leaves = {name: vector([-0.5, -1.0]).requires_grad_() for name in ("mu", "prox", "advantages")}
    inputs = LossInputs(
        trainer_logprobs_N=vector([-0.5, -1.0]).requires_grad_(),
        behaviour_logprobs_N=leaves["mu"],
        prox_logprobs_N=leaves["prox"],
        advantages_N=leaves["advantages"],
        loss_mask_N=torch.tensor([True, True]),
    )
    outputs = grpo_loss(inputs, DECOUPLED, 2)
    outputs.loss.backward()
    assert all(leaf.grad is None for leaf in leaves.values())
    assert not any(value.requires_grad for value in outputs.metrics.values())


# -- mask, padding, extremes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("junk", [-100.0, -math.inf, math.inf, math.nan])
@pytest.mark.parametrize("where", ["pi", "mu", "prox", "advantages", "entropy", "all"])
@pytest.mark.parametrize("params", ALL_PARAMS)
def test_a_masked_token_changes_nothing_whatever_it_holds(junk: float, where: str, params: GrpoParams) -> None:
    """Case 48: multiplying by a mask of 0 would give nan."""
    clean = {
        "pi": [-0.5, -1.0],
        "advantages": [1.0, -1.0],
        "mu": [-0.6, -0.8],
        "prox": [-0.5, -0.9],
        "entropy": [1.0, 2.0],
    }
    dirty = {name: [first, junk if where in (name, "all") else -0.7, second] for name, (first, second) in clean.items()}
    inputs, dirty_inputs = some_inputs(**clean), some_inputs(**dirty, mask=[True, False, True])
    loss, gradient = loss_and_gradient(inputs, params, num_loss_tokens=2)
    dirty_loss, dirty_gradient = loss_and_gradient(dirty_inputs, params, num_loss_tokens=2)
    assert dirty_loss == loss
    assert dirty_gradient == [gradient[0], 0.0, gradient[1]]
    assert metrics_of(dirty_inputs, params) == metrics_of(inputs, params)


def test_a_micro_batch_without_loss_tokens_has_loss_and_gradient_zero() -> None:
    loss, gradient = loss_and_gradient(some_inputs([-1.0, -2.0], [1.0, 1.0], mask=[False, False]), DECOUPLED, 10)
    assert (loss, gradient) == (0.0, [0.0, 0.0])


@pytest.mark.parametrize("params", ALL_PARAMS)
def test_extreme_logprobs_stay_finite_in_float32(params: GrpoParams) -> None:
    values = torch.tensor([-1e4, 0.0, -500.0, -1e-8])
    inputs = LossInputs(
        trainer_logprobs_N=values.clone().requires_grad_(),
        prox_logprobs_N=values.roll(1),
        behaviour_logprobs_N=values.roll(2),
        advantages_N=torch.tensor([1.0, -1.0, 1.0, -1.0]),
        loss_mask_N=torch.ones(4, dtype=torch.bool),
    )
    outputs = grpo_loss(inputs, params, 4)
    (gradient,) = torch.autograd.grad(outputs.loss, inputs.trainer_logprobs_N)
    assert outputs.loss.isfinite()
    assert gradient.isfinite().all()
    assert all(math.isfinite(value) for value in reduce_metrics([outputs.metrics]).values())


# -- aggregation --------------------------------------------------------------------------------------------------


def test_every_token_weighs_the_same() -> None:
    """Case L1: sequences of 1 and 9 tokens weigh 0.1 and 0.9."""
    inputs = some_inputs([-1.0] * 10, [1.0] * 10, mu=[-1.0] * 10)
    _, gradient = loss_and_gradient(inputs, DECOUPLED, num_loss_tokens=10)
    assert -gradient[0] == pytest.approx(0.1)
    assert -sum(gradient[1:]) == pytest.approx(0.9)


@pytest.mark.parametrize("params", ALL_PARAMS)
def test_doubling_all_lengths_keeps_the_scale_of_the_gradient(params: GrpoParams) -> None:
    """Case L2."""
    pi, mu, prox, advantages = [-1.0, -0.3], [-1.2, -0.4], [-1.1, -0.35], [1.0, -0.5]
    once = loss_and_gradient(some_inputs(pi, advantages, mu=mu, prox=prox), params, 2)
    twice = loss_and_gradient(some_inputs(pi * 2, advantages * 2, mu=mu * 2, prox=prox * 2), params, 4)
    assert twice[0] == pytest.approx(once[0])
    assert [twice[1][0] + twice[1][2], twice[1][1] + twice[1][3]] == pytest.approx(once[1])


def test_tokens_that_the_ratio_masks_still_count_in_the_normaliser() -> None:
    kept = some_inputs([-1.0, -1.0], [1.0, 1.0], mu=[-1.0, -9.0])  # weights 1 and exp(8)
    assert loss_and_gradient(kept, DECOUPLED, num_loss_tokens=2) == (-0.5, [-0.5, 0.0])


# -- metrics ------------------------------------------------------------------------------------------------------


def test_metrics_of_four_tokens_by_hand() -> None:
    inputs = some_inputs(
        pi=[math.log(0.5), math.log(0.6), math.log(0.2), math.log(0.9)],
        prox=[math.log(0.5), math.log(0.4), math.log(0.4), math.log(0.1)],
        mu=[math.log(0.25), math.log(0.5), math.log(0.4), math.log(0.5)],
        advantages=[1.0, 1.0, -2.0, -1.0],
        entropy=[1.0, 2.0, 3.0, 4.0],
    )
    # w = 2, 0.8, 1, 0.2;  r = 1, 1.5 (high), 0.5 (low), 9 (above delta)
    weights, ratios = [2, 0.8, 1, 0.2], [1, 1.5, 0.5, 9]
    objective = [2 * 1, 0.8 * 1.28, 0.8 * -2, 0]
    assert metrics_of(inputs, DECOUPLED) == pytest.approx(
        {
            "num_tokens": 4,
            "policy_loss": -sum(objective) / 4,
            "clip_ratio/low_mean": 0.25,
            "clip_ratio/high_mean": 0.25,
            "clip_ratio/delta_mean": 0.25,
            "clip_ratio/region_mean": 0.75,
            "ratio/mean": 3.0,
            "ratio/max": 9.0,
            "ppo_kl": sum(ratio - 1 - math.log(ratio) for ratio in ratios) / 4,
            "sampling/importance_sampling_ratio/mean": 1.0,
            "sampling/importance_sampling_ratio/min": 0.2,
            "sampling/importance_sampling_ratio/max": 2.0,
            "sampling/importance_sampling_ratio/effective_share": 4**2 / (4 * (4 + 0.64 + 1 + 0.04)),
            "sampling/importance_sampling_ratio/fraction_low": 0.25,
            "sampling/importance_sampling_ratio/fraction_high": 0.0,
            "sampling/sampling_logp_difference/mean": sum(abs(math.log(weight)) for weight in weights) / 4,
            "sampling/sampling_logp_difference/max": math.log(5),
            "mismatch_kl/mean": sum(weight - 1 - math.log(weight) for weight in weights) / 4,
            "mismatch_kl/max": 0.2 - 1 + math.log(5),
            "is_masked": 0.25,
            "entropy": 2.5,
        }
    )


def test_weights_are_measured_before_they_are_bounded() -> None:
    """Case L13: one raw weight of 10, the rest 1, cap 2."""
    inputs = some_inputs([-1.0] * 4, [1.0] * 4, mu=[-1.0 - math.log(10), -1.0, -1.0, -1.0])
    params = GrpoParams(weight_high=2.0, weight_mode="clip")
    metrics = metrics_of(inputs, params)
    assert metrics["sampling/importance_sampling_ratio/fraction_high"] == 0.25
    assert metrics["sampling/importance_sampling_ratio/max"] == pytest.approx(10)
    assert metrics["is_masked"] == 0.0
    assert loss_and_gradient(inputs, params)[1] == pytest.approx([-2.0, -1.0, -1.0, -1.0])


def test_on_policy_nothing_is_clipped_masked_or_mismatched() -> None:
    pi = [-0.5, -1.5]
    metrics = metrics_of(some_inputs(pi, [1.0, -1.0], mu=pi), DECOUPLED)
    ones = {"ratio/mean", "ratio/max"} | {
        f"sampling/importance_sampling_ratio/{name}" for name in ("mean", "min", "max", "effective_share")
    }
    assert {name for name, value in metrics.items() if value == 1.0} == ones
    assert {name for name, value in metrics.items() if value != 0.0} == ones | {"num_tokens"}


# -- parameters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", ALL_PARAMS)
def test_every_documented_option_runs(params: GrpoParams) -> None:
    """Case L14."""
    loss, gradient = loss_and_gradient(some_inputs([-0.5, -1.0], [1.0, -1.0], mu=[-0.6, -1.2]), params)
    assert math.isfinite(loss)
    assert all(value != 0 for value in gradient)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 1.28}, r"delta is 1\.28: it must be above 1 \+ clip_high = 1\.28"),
        ({"clip_low": 0.0}, "clip_low is 0.0"),
        ({"clip_low": 1.0}, "clip_low is 1.0"),
        ({"clip_high": 0.0}, "clip_high is 0.0"),
        ({"weight_low": 1.0}, r"the weight band is \[1\.0, 5\.0\]: it must hold 1"),
        ({"weight_high": 1.0}, r"the weight band is \[0\.5, 1\.0\]"),
        ({"weight_low": -0.1}, r"the weight band is \[-0\.1, 5\.0\]"),
        ({"weight_mode": "drop"}, "weight_mode is 'drop': it must be one of mask, clip"),
        ({"anchor": "old"}, "anchor is 'old': it must be one of decoupled, behaviour"),
        ({"delta": math.nan}, "delta is nan"),
    ],
)
def test_parameters_out_of_range_are_refused_with_value_and_rule(change: dict[str, Any], message: str) -> None:
    """Case L14 for the names."""
    with pytest.raises(ValueError, match=message):
        GrpoParams(**change)


def test_a_step_without_loss_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="num_loss_tokens is 0"):
        grpo_loss(some_inputs([-1.0], [1.0]), DECOUPLED, 0)


def test_inputs_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2,\) and \(1,\)"):
        some_inputs([-1.0, -1.0], [1.0])
    with pytest.raises(ValueError, match=r"\[N\]"):
        replace(some_inputs([-1.0], [1.0]), trainer_logprobs_N=torch.zeros(1, 1))


def test_a_mask_that_is_not_boolean_is_refused() -> None:
    with pytest.raises(ValueError, match="must be bool"):
        replace(some_inputs([-1.0], [1.0]), loss_mask_N=torch.ones(1))
