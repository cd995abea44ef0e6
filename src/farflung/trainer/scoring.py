"""What a decoder thinks of samples: logprob and entropy of every completion token, without a gradient.

One pass over all samples, packed as a step packs them. For the reference of a KL term, and for entropies that have to
be known before the first step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.model.build import AnyDecoder
from farflung.rl.batch import flatten
from farflung.rl.packing import split_micro_batches
from farflung.rl.types import TrainingSample
from farflung.trainer.forward import batch_logprobs


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Score:
    """Of one sample."""

    logprobs: NDArray[np.float32]
    """[T]."""
    entropies: NDArray[np.float32]
    """[T] nats."""


@torch.no_grad()
def score(
    decoder: AnyDecoder,
    samples: Sequence[TrainingSample],
    *,
    temperature: float,
    reserved_token_ids: Sequence[int],
    micro_batch_tokens: int,
) -> list[Score]:
    """In the order of the samples, on the CPU."""
    device = decoder.lm_head_weight.device
    scores: dict[tuple[int, int, int], Score] = {}
    for part in split_micro_batches(samples, micro_batch_tokens):
        logprobs_M, entropy_M = batch_logprobs(decoder, flatten(part).to(device), temperature, reserved_token_ids)
        counts = [sample.num_completion_tokens for sample in part]
        for sample, logprobs_T, entropy_T in zip(part, logprobs_M.split(counts), entropy_M.split(counts), strict=True):
            scores[sample.key] = Score(logprobs=_array(logprobs_T), entropies=_array(entropy_T))
    return [scores[sample.key] for sample in samples]


def _array(values_T: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = values_T.float().cpu().numpy()
    return array
