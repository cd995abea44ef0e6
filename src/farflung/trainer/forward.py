"""Logprobs of a batch's completion tokens under any decoder: the policy, its masters, a reference."""

from collections.abc import Sequence

from torch import Tensor

from farflung.model.batch_layout import predicting_states
from farflung.model.build import AnyDecoder
from farflung.model.head import token_logprobs
from farflung.rl.batch import FlatBatch


def batch_logprobs(
    decoder: AnyDecoder, batch: FlatBatch, temperature: float = 1.0, reserved_token_ids: Sequence[int] = ()
) -> tuple[Tensor, Tensor]:
    """(logprobs_M, entropy_M), on the device of the decoder and of the batch."""
    return token_logprobs(
        predicting_states(decoder, batch),
        decoder.lm_head_weight,
        batch.targets_M,
        temperature=temperature,
        reserved_token_ids=reserved_token_ids,
    )
