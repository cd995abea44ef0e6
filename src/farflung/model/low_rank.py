"""What a LoRA adapter adds to a projection (2106.09685):  y = W x + b + scale * B (A x),  B A of low rank.

    apart    W is the base's; the product is added in each pass
    merged   W holds the product already (rounded with it, as it is published): a pass adds nothing, and the gradient
             of A and B is that of the sum:   dB = scale g (A x)^T,   dA = scale (B^T g) x^T

Letters: N tokens, I inputs, O outputs, R ranks of all matrices that are fused into this projection.
Knows neither names nor files.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_RANKS = 2
"""A product with a single row of A takes another path with other last bits for some numbers of tokens."""


class LowRank(nn.Module):
    """The pair of matrices of one projection; zero until loaded."""

    def __init__(self, num_in: int, num_out: int, num_ranks: int, scale: float, *, like: Tensor) -> None:
        """
        Args:
            like: whose dtype and device the matrices have.
        """
        super().__init__()
        num_ranks = max(num_ranks, MIN_RANKS)
        self.a_RI = nn.Parameter(like.new_zeros(num_ranks, num_in))
        self.b_OR = nn.Parameter(like.new_zeros(num_out, num_ranks))
        self.scale = scale
        self.is_merged = False
        """Whether the projection's own weight holds the product."""

    def forward(self, x_NI: Tensor, output_NO: Tensor) -> Tensor:
        """`output_NO`, which is the projection's own and is overwritten, with the adapter's share."""
        if not self.is_merged:
            return output_NO.addmm_(F.linear(x_NI, self.a_RI), self.b_OR.T, alpha=self.scale)
        if not torch.is_grad_enabled():
            return output_NO
        output: Tensor = _GradientOfMerged.apply(output_NO, x_NI, self.a_RI, self.b_OR, self.scale)  # type: ignore[no-untyped-call]
        return output


class _GradientOfMerged(torch.autograd.Function):
    """Identity, with a gradient for the matrices that the output holds."""

    @staticmethod
    def forward(ctx: Any, output_NO: Tensor, x_NI: Tensor, a_RI: Tensor, b_OR: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x_NI, a_RI, b_OR)
        ctx.scale = scale
        ctx.mark_dirty(output_NO)
        return output_NO

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None]:
        x_NI, a_RI, b_OR = ctx.saved_tensors
        grad_NO = grads[0]
        grad_NR = (grad_NO @ b_OR).mul_(ctx.scale)
        grad_b_OR = (grad_NO.T @ F.linear(x_NI, a_RI)).mul_(ctx.scale)
        return grad_NO, None, grad_NR.T @ x_NI, grad_b_OR, None
