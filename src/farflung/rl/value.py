"""PPO's clipped value loss: a critic may not move further from its old values than the policy from its own.

    L_t  = 0.5 * max( (V_t - G_t)^2, (clip(V_t, V_old_t - clip, V_old_t + clip) - G_t)^2 )
    loss = sum_t m_t L_t / N                                             G: returns of `rl.gae`

Pure maths: the critic itself is not known here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from farflung.rl.checks import require, require_loss_tokens
from farflung.rl.loss import LossOutputs
from farflung.rl.metrics import NUM_TOKENS, token_sum


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ValueInputs:
    """Per completion token of one micro-batch, [N] each."""

    values_N: Tensor
    """Of the critic being trained; the only one that carries a gradient."""
    old_values_N: Tensor
    """Of the critic when the version began."""
    returns_N: Tensor
    loss_mask_N: Tensor
    """bool; values elsewhere may be anything, nan included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueParams:
    clip: float = 0.5
    """In units of the value; as AReaL. inf = plain squared error."""

    def __post_init__(self) -> None:
        require(self.clip > 0, f"clip is {self.clip}: it must be above 0, usually 0.5")


def value_loss(inputs: ValueInputs, params: ValueParams, num_loss_tokens: int) -> LossOutputs:
    """The micro-batch's part of the loss, as a policy objective's.

    Raises:
        ValueError: `num_loss_tokens` is below 1.
    """
    require_loss_tokens(num_loss_tokens)
    mask_N = inputs.loss_mask_N
    values_N = torch.where(mask_N, inputs.values_N, 0)
    old_N = torch.where(mask_N, inputs.old_values_N.detach(), 0)
    returns_N = torch.where(mask_N, inputs.returns_N.detach(), 0)
    clipped_N = torch.maximum(torch.minimum(values_N, old_N + params.clip), old_N - params.clip)
    free_error_N, clipped_error_N = (values_N - returns_N).square(), (clipped_N - returns_N).square()
    loss = 0.5 * torch.maximum(free_error_N, clipped_error_N).sum() / num_loss_tokens
    with torch.no_grad():
        metrics = {
            NUM_TOKENS: mask_N.sum(),
            "sum/value/error_mean": free_error_N.sum(),
            "sum/value/mean": values_N.sum(),
            "sum/value/clip_ratio_mean": token_sum(clipped_error_N > free_error_N, mask_N),
        }
    return LossOutputs(loss=loss, metrics=metrics)
