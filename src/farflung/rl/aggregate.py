"""From token losses to the loss: how much each token and each sequence weighs.

    token_mean      sum m L / N                                 every token alike: DAPO, and the default
    sequence_mean   (1/S) sum_i (sum_t m L / T_i)               every sequence alike: GRPO, GSPO
    sequence_sum    (1/S) sum_i sum_t m L
    constant        sum m L / (S * L_max)                       Dr.GRPO, arXiv 2503.20783

N loss tokens and S sequences with any, both of the *whole* optimizer step (all micro-batches and ranks); T_i loss
tokens of sequence i; L_max a fixed length. So parts of micro-batches add up to exactly the loss of the undivided step.
A mean per micro-batch, which depends on how the step was cut, is not offered.

Example: a sequence of 2 tokens with loss 1 and one of 8 with loss 0: 0.2, 0.5, 1 and, for L_max 16, 0.0625.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from farflung.rl.checks import require, require_name
from farflung.rl.loss import LossInputs

Aggregation = Literal["token_mean", "sequence_mean", "sequence_sum", "constant"]


def require_aggregation(aggregation: str, max_length_tokens: int | None) -> None:
    """Raises `ValueError` on an unknown name, or without the length that "constant" divides by."""
    require_name("aggregation", aggregation, get_args(Aggregation))
    require(
        aggregation != "constant" or (max_length_tokens is not None and max_length_tokens >= 1),
        f"max_length_tokens is {max_length_tokens} with aggregation 'constant': give the longest completion, >= 1",
    )


def aggregate(
    loss_N: Tensor,
    inputs: LossInputs,
    aggregation: Aggregation,
    num_loss_tokens: int,
    max_length_tokens: int | None = None,
) -> Tensor:
    """Scalar: the micro-batch's part of the step's loss.

    Args:
        loss_N: [N] token losses; those of masked tokens may be anything.
        inputs: mask, and sequences for all but "token_mean".
        num_loss_tokens: N of the whole optimizer step.
        max_length_tokens: L_max of "constant".

    Raises:
        ValueError: "token_mean" is not asked for and the inputs have no sequences.
    """
    mask_N = inputs.loss_mask_N
    if aggregation == "token_mean":
        return torch.where(mask_N, loss_N, 0).sum() / num_loss_tokens
    sequences = inputs.required_sequences
    if aggregation == "sequence_mean":
        return sequences.mean(loss_N, mask_N).sum() / sequences.num_loss_sequences
    total = torch.where(mask_N, loss_N, 0).sum()
    if aggregation == "sequence_sum":
        return total / sequences.num_loss_sequences
    require_aggregation(aggregation, max_length_tokens)
    return total / (sequences.num_loss_sequences * (max_length_tokens or 1))
