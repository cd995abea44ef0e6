"""RMSNorm: `y = x / sqrt(mean(x^2) + eps) * (weight + offset)`, at least in float32 inside.

with n = x / rms(x), u = grad * weight:   dx = (u - n mean(u n)) / rms(x),   dweight = sum over tokens of grad * n
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Over the last dimension; weight + offset is 1 until loaded."""

    _eps: Tensor

    def __init__(self, size: int, eps: float, dtype: torch.dtype, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1.0 - offset, dtype=dtype))
        self.eps, self._offset = eps, offset
        self.register_buffer("_eps", torch.tensor(eps, dtype=dtype), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight + self._offset if self._offset else self.weight
        if not x.is_cpu or x.dtype in (torch.bfloat16, torch.float16):
            return F.rms_norm(x, weight.shape, weight, self.eps)
        if not torch.is_grad_enabled():
            return _rms_norm_on_cpu(x, weight, self._eps)
        normed: Tensor = _RMSNormOnCpu.apply(x, weight, self._eps)  # type: ignore[no-untyped-call]
        return normed


def _rms_norm_on_cpu(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """Five kernels where `F.rms_norm` runs eight, which a decode step of a small model notices."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    inverse_rms = torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).rsqrt_()
    return (x * inverse_rms).mul_(weight)


class _RMSNormOnCpu(torch.autograd.Function):
    """A gradient in 9 kernels: on CPUs torch differentiates `F.rms_norm` step by step, twice as slowly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return _rms_norm_on_cpu(x, weight, eps)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        inverse_rms = x.square().mean(-1, keepdim=True).add_(ctx.eps).rsqrt_()
        n = x * inverse_rms
        grad_n = grads[0] * n
        grad_weight = grad_n.flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        mean_un = (grad_n @ weight).div_(x.shape[-1]).unsqueeze(-1)
        grad_x = (grads[0] * weight).addcmul_(n, mean_un, value=-1).mul_(inverse_rms)
        return grad_x, grad_weight, None
