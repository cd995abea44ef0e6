import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from farflung.rl.entropy import EntropyParams, entropy_loss
from farflung.rl.loss import LossInputs

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def some_inputs(pi_N: Tensor, entropy_N: Tensor | None = None, mask: list[bool] | None = None) -> LossInputs:
    zeros_N = torch.zeros(len(pi_N), dtype=torch.float64)
    return LossInputs(
        trainer_logprobs_N=pi_N,
        behaviour_logprobs_N=zeros_N,
        advantages_N=zeros_N,
        loss_mask_N=torch.tensor(mask or [True] * len(pi_N)),
        entropy_N=entropy_N,
    )


def test_both_forms_have_the_gradient_of_the_entropy() -> None:
    """On a softmax of three: the sampled form in exact expectation under pi."""
    logits = P.log().clone().requires_grad_()
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum()
    exact = entropy_loss(some_inputs(logp[:1], entropy[None]), EntropyParams(coefficient=0.1, form="exact"), 1).loss
    assert exact.item() == pytest.approx(-0.1 * entropy.item())
    (by_entropy,) = torch.autograd.grad(exact, logits, retain_graph=True)
    by_token = [
        torch.autograd.grad(
            entropy_loss(some_inputs(logp[v : v + 1]), EntropyParams(coefficient=0.1), 1).loss,
            logits,
            retain_graph=True,
        )[0]
        for v in range(3)
    ]
    assert (P[:, None] * torch.stack(by_token)).sum(0).tolist() == pytest.approx(by_entropy.tolist())
    assert by_entropy.abs().max() > 0.01


def test_the_sampled_form_by_hand() -> None:
    pi_N = torch.tensor([-0.5, -1.0, math.nan], dtype=torch.float64, requires_grad=True)
    loss = entropy_loss(some_inputs(pi_N, mask=[True, True, False]), EntropyParams(coefficient=0.1), 2).loss
    assert loss.item() == pytest.approx(0.1 * (0.25 + 1) / 2)
    (gradient,) = torch.autograd.grad(loss, pi_N)
    assert gradient.tolist() == pytest.approx([-0.1 * 0.5 / 2, -0.1 * 1.0 / 2, 0])


def test_an_exact_bonus_that_would_do_nothing_is_refused() -> None:
    """Case L5, for the entropy: computed without gradient, it would have no effect."""
    pi_N = torch.tensor([-0.5], dtype=torch.float64, requires_grad=True)
    exact = EntropyParams(form="exact")
    for entropy_N in (None, torch.ones(1, dtype=torch.float64)):
        with pytest.raises(ValueError, match="would do nothing"):
            entropy_loss(some_inputs(pi_N, entropy_N), exact, 1)


def test_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="coefficient is 0"):
        replace(EntropyParams(), coefficient=0.0)
    with pytest.raises(ValueError, match="must be one of exact, sampled"):
        replace(EntropyParams(), form="adaptive")  # type: ignore[arg-type]
