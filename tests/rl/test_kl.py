import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from farflung.rl.kl import KlParams, LossKl, RewardKl, k1, k2, k3, k3_plus, kl_in_reward, kl_loss
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import reduce_metrics

PI = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REF = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
KL_PI_REF = [0.09894, -0.09388, -0.00505]
"""Gradient of KL(pi, ref) in the logits."""
KL_REF_PI = [0.1, -0.1, 0.0]


def expected_gradient(term_of: Callable[[Tensor], Tensor]) -> list[float]:
    """Exact expectation under pi, as constants, of the gradient of a token's term in the logits."""
    logits = PI.log().clone().requires_grad_()
    (gradient,) = torch.autograd.grad((PI * term_of(logits.log_softmax(-1))).sum(), logits)
    return gradient.tolist()


def some_inputs(mask: list[bool] | None = None) -> LossInputs:
    pi_N = torch.tensor([-0.5, -1.0, -2.0], dtype=torch.float64)
    return LossInputs(
        trainer_logprobs_N=pi_N.requires_grad_(),
        behaviour_logprobs_N=pi_N.detach() - torch.tensor([0.0, 0.2, -0.1], dtype=torch.float64),
        ref_logprobs_N=torch.tensor([-0.6, -0.7, -2.0], dtype=torch.float64),
        advantages_N=torch.zeros(3, dtype=torch.float64),
        loss_mask_N=torch.tensor(mask or [True] * 3),
    )


@pytest.mark.parametrize(
    ("estimator", "expected"), [(k1, 0.025267), (k2, 0.024862), (k3, 0.025267), (k3_plus, 0.025267)]
)
def test_values_on_three_tokens(estimator: Callable[[Tensor], Tensor], expected: float) -> None:
    x = PI.log() - REF.log()
    assert (PI * estimator(x)).sum().item() == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(
    ("estimator", "expected"), [(k1, [0, 0, 0]), (k2, KL_PI_REF), (k3, KL_REF_PI), (k3_plus, KL_PI_REF)]
)
def test_gradients_on_three_tokens(estimator: Callable[[Tensor], Tensor], expected: list[float]) -> None:
    """Case L6."""
    assert expected_gradient(lambda logp: estimator(logp - REF.log())) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k2", KL_PI_REF), ("k3", KL_REF_PI), ("k3+", KL_PI_REF), ("k3_unbiased", KL_PI_REF)],
)
def test_the_loss_has_the_gradient_of_its_estimator(estimator: LossKl, expected: list[float]) -> None:
    """Case L6, through the loss: three tokens, each weighed by its probability (the gradient is linear)."""

    def term(logp: Tensor) -> Tensor:
        one = torch.ones(1, dtype=torch.bool)
        parts = [
            kl_loss(
                LossInputs(
                    trainer_logprobs_N=logp[v : v + 1],
                    behaviour_logprobs_N=PI.log()[v : v + 1],
                    ref_logprobs_N=REF.log()[v : v + 1],
                    advantages_N=torch.zeros(1, dtype=torch.float64),
                    loss_mask_N=one,
                ),
                KlParams(coefficient=0.5, estimator=estimator),
                1,
            ).loss
            for v in range(3)
        ]
        return torch.stack(parts)

    assert expected_gradient(term) == pytest.approx([0.5 * value for value in expected], abs=1e-5)


def test_the_unbiased_form_is_right_for_samples_of_another_policy() -> None:
    """Expectation under mu, not pi."""
    mu = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    logits = PI.log().clone().requires_grad_()
    logp = logits.log_softmax(-1)
    inputs = LossInputs(
        trainer_logprobs_N=logp,
        behaviour_logprobs_N=mu.log(),
        ref_logprobs_N=REF.log(),
        advantages_N=torch.zeros(3, dtype=torch.float64),
        loss_mask_N=torch.ones(3, dtype=torch.bool),
    )
    by_token = [
        torch.autograd.grad(
            kl_loss(
                replace(inputs, loss_mask_N=torch.arange(3) == v), KlParams(coefficient=1, estimator="k3_unbiased"), 1
            ).loss,
            logits,
            retain_graph=True,
        )[0]
        for v in range(3)
    ]
    assert (mu[:, None] * torch.stack(by_token)).sum(0).tolist() == pytest.approx(KL_PI_REF, abs=1e-5)


def test_beyond_the_clamp_only_the_linear_part_of_k3_moves() -> None:
    """Case L6, outside the clamp: exp(-x) stands still at exp(20), x does not."""
    x = torch.tensor([-25.0, 25.0], dtype=torch.float64, requires_grad=True)
    value = k3(x)
    assert value.tolist() == pytest.approx([math.exp(20) - 1 - 25, math.exp(-20) - 1 + 25])
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert gradient.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("estimator", get_args(LossKl))
def test_every_estimator_has_a_gradient_that_scales_with_its_coefficient(estimator: LossKl) -> None:
    """Cases L5 and L14."""
    gradients = []
    for coefficient in (1e-3, 2e-3):
        inputs = some_inputs()
        loss = kl_loss(inputs, KlParams(coefficient=coefficient, estimator=estimator), 3).loss
        gradients.append(torch.autograd.grad(loss, inputs.trainer_logprobs_N)[0])
    assert gradients[0].abs().max() > 1e-5
    assert gradients[1].tolist() == pytest.approx((2 * gradients[0]).tolist())


def test_the_loss_of_three_tokens_by_hand() -> None:
    inputs = some_inputs()
    outputs = kl_loss(inputs, KlParams(coefficient=0.1), 3)
    assert outputs.loss.item() == pytest.approx(0.1 * (0.1**2 + 0.3**2) / 2 / 3)
    (gradient,) = torch.autograd.grad(outputs.loss, inputs.trainer_logprobs_N)
    assert gradient.tolist() == pytest.approx([0.1 * 0.1 / 3, -0.1 * 0.3 / 3, 0.0])


def test_the_logged_kl_is_the_recomputed_one_and_nothing_is_changed_in_place() -> None:
    """Case L9."""
    inputs = some_inputs([True, True, False])
    before = inputs.trainer_logprobs_N.tolist()
    metrics = reduce_metrics([kl_loss(inputs, KlParams(), 2).metrics])
    assert metrics["kl"] == pytest.approx((math.exp(-0.1) - 1 + 0.1 + math.exp(0.3) - 1 - 0.3) / 2)
    kl_in_reward(inputs.trainer_logprobs_N, REF.log(), inputs.loss_mask_N).mul_(5)
    assert inputs.trainer_logprobs_N.tolist() == before


@pytest.mark.parametrize("estimator", get_args(LossKl))
def test_masked_positions_reach_neither_loss_nor_gradient(estimator: LossKl) -> None:
    params = KlParams(estimator=estimator)
    clean = some_inputs([True, False, True])
    ref_N = torch.tensor([-0.6, math.nan, -2.0], dtype=torch.float64)
    dirty = replace(clean, ref_logprobs_N=ref_N)
    loss = kl_loss(dirty, params, 2).loss
    assert loss.item() == kl_loss(clean, params, 2).loss.item()
    (gradient,) = torch.autograd.grad(loss, clean.trainer_logprobs_N)
    assert gradient[1] == 0


def test_the_reward_s_kl_is_k1_without_gradient() -> None:
    inputs = some_inputs([True, False, True])
    assert inputs.ref_logprobs_N is not None
    penalty = kl_in_reward(inputs.trainer_logprobs_N, inputs.ref_logprobs_N, inputs.loss_mask_N)
    assert penalty.tolist() == pytest.approx([0.1, 0, 0])
    assert not penalty.requires_grad


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k1", [0.1, -0.3]), ("k2", [0.005, 0.045]), ("k3", [math.exp(-0.1) - 0.9, math.exp(0.3) - 1.3])],
)
def test_the_reward_can_be_charged_by_every_estimator_that_has_a_value(
    estimator: RewardKl, expected: list[float]
) -> None:
    """Case L14; a masked position may hold anything."""
    pi_N = torch.tensor([-0.5, -1.0, math.nan], dtype=torch.float64)
    ref_N = torch.tensor([-0.6, -0.7, -math.inf], dtype=torch.float64)
    penalty = kl_in_reward(pi_N, ref_N, torch.tensor([True, True, False]), estimator)
    assert penalty.tolist() == pytest.approx([*expected, 0.0])


def test_an_estimator_that_differs_in_its_gradient_alone_is_refused_in_the_reward() -> None:
    with pytest.raises(ValueError, match="carries no gradient: it must be one of k1, k2, k3"):
        kl_in_reward(PI, REF, torch.ones(3, dtype=torch.bool), "k3+")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coefficient": 0.0}, "coefficient is 0"),
        ({"estimator": "k1"}, "'k1' in the loss, where its expected gradient is 0 .*placement reward.* k2, k3, k3+"),
        ({"estimator": "k4"}, "'k4': it must be one of k2, k3, k3+"),
    ],
)
def test_parameters_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    """k1 among them: in the loss its expected gradient is 0."""
    with pytest.raises(ValueError, match=message.replace("k3+", r"k3\+")):
        KlParams(**change)


def test_a_term_without_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the reference"):
        kl_loss(replace(some_inputs(), ref_logprobs_N=None), KlParams(), 3)
