"""How a decoder takes a padding-free batch (`rl.batch`): documents end to end, prompts shared."""

import numpy as np
import torch
from torch import Tensor

from farflung.model.build import AnyDecoder
from farflung.model.cells import Prefixes
from farflung.model.layout import SequenceLayout
from farflung.model.varlen import can_attend_packed
from farflung.rl.batch import FlatBatch


def layout_of(batch: FlatBatch, device: torch.device, dtype: torch.dtype) -> SequenceLayout:
    """Of a batch on `device`, for a decoder of this type."""
    prefixes = None
    if any(batch.prefix_lengths):
        prefixes = Prefixes(starts_D=np.array(batch.prefix_starts), lengths_D=np.array(batch.prefix_lengths))
    return SequenceLayout.from_lengths(
        batch.lengths, device, prefixes=prefixes, is_packed=can_attend_packed(device, dtype)
    )


def predicting_states(decoder: AnyDecoder, batch: FlatBatch) -> Tensor:
    """[M, D] post-final-norm states that predict each completion token, on the device of decoder and batch."""
    layout = layout_of(batch, batch.tokens_N.device, decoder.lm_head_weight.dtype)
    hidden_MD: Tensor = decoder(batch.tokens_N, layout, batch.rows_M)
    return hidden_MD
