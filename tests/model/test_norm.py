"""RMSNorm and its own gradient."""

import torch

from farflung.model.norm import RMSNorm


def _norm(size: int, eps: float) -> RMSNorm:
    norm = RMSNorm(size, eps, torch.float64)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2.0, size))
    return norm


def test_two_numbers_by_hand() -> None:
    norm = RMSNorm(2, 1e-12, torch.float64)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0]))
    # rms of (3, 4) is sqrt(12.5).
    expected = torch.tensor([[3.0, 8.0]], dtype=torch.float64) / 12.5**0.5
    torch.testing.assert_close(norm(torch.tensor([[3.0, 4.0]], dtype=torch.float64)), expected)


def test_the_gradient_is_the_derivative() -> None:
    norm = _norm(6, 0.1)
    x = torch.randn(3, 2, 6, dtype=torch.float64, requires_grad=True)

    def output(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        norm.weight = torch.nn.Parameter(weight.detach())
        return torch.func.functional_call(norm, {"weight": weight}, (x,))

    assert torch.autograd.gradcheck(output, (x, norm.weight.detach().requires_grad_()))


def test_recording_a_gradient_changes_no_bit() -> None:
    norm, x = _norm(64, 1e-6), torch.randn(50, 64, dtype=torch.float64)
    with torch.no_grad():
        without = norm(x)
    assert torch.equal(norm(x), without)
