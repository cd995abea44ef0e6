"""Which token belongs to which sequence, and sums over sequences.

    sequence_N       0 0 0 1 1        tokens of two sequences, end to end
    values_N         1 2 3 4 6
    sum -> values_S  6 10             mean -> 2 5             spread(values_S) -> 6 6 6 10 10

N tokens and S sequences of one micro-batch. A sequence is never split over micro-batches, so what is summed here is
whole. Masked positions are selected away, never multiplied by 0. Knows no objective.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Sequences:
    """The document index of a micro-batch, and how many sequences the optimizer step has."""

    sequence_N: Tensor
    """[N] int64, position of each token's sequence in the micro-batch, 0 to S - 1."""
    num_sequences: int
    """S, of this micro-batch."""
    num_loss_sequences: int
    """Sequences with at least one loss token in the *whole* optimizer step, over all micro-batches and ranks."""

    def __post_init__(self) -> None:
        if self.sequence_N.dtype != torch.int64 or self.sequence_N.dim() != 1:
            raise ValueError(
                f"sequence_N is {tuple(self.sequence_N.shape)} of {self.sequence_N.dtype}: it must be [N] of int64"
            )
        if self.num_sequences < 1 or self.num_loss_sequences < 1:
            raise ValueError(
                f"num_sequences is {self.num_sequences} and num_loss_sequences {self.num_loss_sequences}: both must be "
                ">= 1, skip a step without tokens"
            )

    def sum(self, values_N: Tensor, mask_N: Tensor) -> Tensor:
        """[S] sums over the selected tokens; 0 for a sequence without any."""
        selected_N = torch.where(mask_N, values_N, 0)
        return selected_N.new_zeros(self.num_sequences).index_add(0, self.sequence_N, selected_N)

    def mean(self, values_N: Tensor, mask_N: Tensor) -> Tensor:
        """[S] means over the selected tokens; 0 for a sequence without any."""
        counts_S = self.sum(torch.ones_like(values_N), mask_N)
        return self.sum(values_N, mask_N) / counts_S.clamp(min=1)

    def spread(self, values_S: Tensor) -> Tensor:
        """[N] every token gets the value of its sequence."""
        return values_S.index_select(0, self.sequence_N)
