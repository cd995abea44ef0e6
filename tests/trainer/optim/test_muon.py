import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from farflung.trainer.optim.muon import NEWTON_SCHULZ, NUM_ITERATIONS, UPDATE_RMS, Muon, orthogonalise


def matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def muon(
    weights: nn.Parameter, *, lr: float, decay: float = 0.0, momentum: float = 0.95, rows: tuple[int, ...] = ()
) -> Muon:
    made = Muon([weights], momentum=momentum, weight_decay=decay, rows={weights: rows} if rows else {})
    made.param_groups[0]["lr"] = lr
    return made


def polynomial(value: float) -> float:
    """What the iteration makes of one singular value."""
    a, b, c = NEWTON_SCHULZ
    for _ in range(NUM_ITERATIONS):
        value = a * value + b * value**3 + c * value**5
    return value


def test_a_diagonal_matrix_by_hand() -> None:
    """Singular values are the entries over the norm, each iterated on its own."""
    result = orthogonalise(torch.tensor([[[3.0, 0.0], [0.0, 4.0]]]))[0]
    expected = torch.tensor([[polynomial(0.6), 0.0], [0.0, polynomial(0.8)]])
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
    assert (polynomial(0.6), polynomial(0.8)) == pytest.approx((0.7229, 1.1192), abs=1e-4)


@settings(max_examples=30)
@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_directions_stay_and_singular_values_become_one(rows: int, columns: int, seed: int, size: float) -> None:
    given_RC = matrix(rows, columns, seed) * size
    left, values, right = torch.linalg.svd(given_RC, full_matrices=False)
    result = orthogonalise(given_RC[None])[0]
    core = left.T @ result @ right.T
    assert torch.allclose(core, core.diagonal().diag(), atol=2e-3)
    usable = values / given_RC.norm() > 1e-2  # smaller ones need more iterations
    assert ((core.diagonal()[usable] > 0.6) & (core.diagonal()[usable] < 1.25)).all()


def test_a_stack_is_done_one_by_one_and_zeros_stay_zeros() -> None:
    stack = torch.stack([matrix(5, 9), torch.zeros(5, 9), matrix(5, 9, 1)])
    result = orthogonalise(stack)
    assert torch.equal(result[1], torch.zeros(5, 9))
    torch.testing.assert_close(result[2], orthogonalise(stack[2:])[0])


def test_two_steps_by_hand() -> None:
    """B1 = G, U1 = (1 + mu) G; B2 = mu G + H, U2 = H + mu B2. Decay shrinks the weights first."""
    before, first, second = matrix(6, 4), matrix(6, 4, 1), matrix(6, 4, 2)
    weights = nn.Parameter(before.clone())
    optimizer = muon(weights, lr=0.1, decay=0.5, momentum=0.9)
    expected, momentum = before, torch.zeros_like(before)
    for gradient in (first, second):
        weights.grad = gradient.clone()
        optimizer.step()
        momentum = 0.9 * momentum + gradient
        update = orthogonalise((gradient + 0.9 * momentum)[None])[0]
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * 0.2 * math.sqrt(6) * update
        torch.testing.assert_close(weights.detach(), expected)


@pytest.mark.parametrize("shape", [(64, 64), (32, 128), (256, 16)])
def test_an_update_is_as_large_as_that_of_adamw(shape: tuple[int, int]) -> None:
    """Root mean square 0.2 lr for every shape (orthogonal: rms 1 / sqrt(max(shape)))."""
    weights = nn.Parameter(torch.zeros(shape))
    weights.grad = matrix(*shape)
    muon(weights, lr=1.0).step()
    rms = float(weights.detach().square().mean().sqrt())
    assert rms == pytest.approx(UPDATE_RMS, rel=0.25)


def test_the_size_of_the_gradient_does_not_matter() -> None:
    results = []
    for size in (1e-6, 1e3):
        weights = nn.Parameter(torch.zeros(8, 8))
        weights.grad = matrix(8, 8) * size
        muon(weights, lr=1.0).step()
        results.append(weights.detach())
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-4)


def test_stacked_matrices_are_matrices_of_their_own() -> None:
    gradients = matrix(4, 6), matrix(2, 6, 1), matrix(2, 6, 2)
    fused = nn.Parameter(torch.zeros(8, 6))
    fused.grad = torch.cat(gradients)
    muon(fused, lr=1.0, rows=(4, 2, 2)).step()
    for part, gradient in zip(fused.detach().split([4, 2, 2]), gradients, strict=True):
        alone = nn.Parameter(torch.zeros_like(gradient))
        alone.grad = gradient
        muon(alone, lr=1.0).step()
        torch.testing.assert_close(part, alone.detach())


def test_a_matrix_without_a_gradient_stays() -> None:
    weights = nn.Parameter(matrix(3, 3))
    optimizer = muon(weights, lr=1.0, decay=0.5)
    optimizer.step()
    assert torch.equal(weights.detach(), matrix(3, 3))
    assert not optimizer.state
