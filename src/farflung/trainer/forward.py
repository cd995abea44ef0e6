"""Logprobs of a batch's completion tokens under any decoder: the policy, its masters, a reference."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from farflung.model.build import AnyDecoder
from farflung.model.cells import Prefixes
from farflung.model.head import token_logprobs
from farflung.model.layout import SequenceLayout
from farflung.model.varlen import can_attend_packed
from farflung.rl.batch import FlatBatch


def batch_logprobs(
    decoder: AnyDecoder, batch: FlatBatch, temperature: float = 1.0, reserved_token_ids: Sequence[int] = ()
) -> tuple[Tensor, Tensor]:
    """(logprobs_M, entropy_M), on the device of the decoder and of the batch."""
    prefixes = None
    if any(batch.prefix_lengths):
        prefixes = Prefixes(starts_D=np.array(batch.prefix_starts), lengths_D=np.array(batch.prefix_lengths))
    device, weights = batch.tokens_N.device, decoder.lm_head_weight
    layout = SequenceLayout.from_lengths(
        batch.lengths, device, prefixes=prefixes, is_packed=can_attend_packed(device, weights.dtype)
    )
    return token_logprobs(
        decoder(batch.tokens_N, layout, batch.rows_M),
        weights,
        batch.targets_M,
        temperature=temperature,
        reserved_token_ids=reserved_token_ids,
    )
