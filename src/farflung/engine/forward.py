"""Two ways through the decoder: whole prompts, and one more token of every live row.

Both call the decoder's own pieces, so a token's arithmetic is the trainer's; only where attention finds its keys and
values differs. Knows no sampling.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.engine.kv_cache import COLUMN_MULTIPLE, KVCache
from farflung.model.decoder import Decoder
from farflung.model.layout import SequenceLayout

MIN_BATCH_ROWS = 4
"""Matrix products of fewer rows take other paths with other last bits, and more time; no forward here has fewer."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Prefill:
    """What prompts leave behind. N flat prompt tokens of P prompts, S layers, K key/value heads."""

    kv_SNKd: Tensor
    """[S, N, 2K, d]: keys and values side by side."""
    last_hidden_PD: Tensor
    """Post-final-norm states that predict each prompt's first completion token."""
    starts_P: NDArray[np.int64]
    """Flat index of each prompt's first token."""
    lengths_P: NDArray[np.int64]

    def followed_by(self, other: "Prefill") -> "Prefill":
        return Prefill(
            kv_SNKd=torch.cat((self.kv_SNKd, other.kv_SNKd), dim=1),
            last_hidden_PD=torch.cat((self.last_hidden_PD, other.last_hidden_PD)),
            starts_P=np.concatenate((self.starts_P, other.starts_P + self.kv_SNKd.shape[1])),
            lengths_P=np.concatenate((self.lengths_P, other.lengths_P)),
        )

    def last(self) -> "Prefill":
        """Only the last prompt."""
        start, length = int(self.starts_P[-1]), int(self.lengths_P[-1])
        return Prefill(
            kv_SNKd=self.kv_SNKd[:, start : start + length],
            last_hidden_PD=self.last_hidden_PD[-1:],
            starts_P=np.zeros(1, dtype=np.int64),
            lengths_P=self.lengths_P[-1:],
        )


def prefill(decoder: Decoder, prompts: Sequence[NDArray[np.int32]]) -> Prefill:
    """Run prompts through the decoder, each once."""
    num_prompts = len(prompts)
    documents = [*prompts] * -(-MIN_BATCH_ROWS // sum(map(len, prompts)))
    device = decoder.embed_tokens.device
    layout = SequenceLayout.from_lengths(
        [len(document) for document in documents], device, length_multiple=COLUMN_MULTIPLE
    )
    hidden_ND = decoder.embed(torch.from_numpy(np.concatenate(documents).astype(np.int64)).to(device))
    rotations = decoder.rotations(layout.positions_N, layout.max_length)
    last_tokens = (layout.starts_D + layout.lengths_D - 1)[:num_prompts]
    last_tokens = last_tokens.repeat(-(-MIN_BATCH_ROWS // num_prompts))
    kept = []
    for layer, rotation_Nc in zip(decoder.layers, rotations, strict=True):
        heads_NHd = layer.heads(hidden_ND, rotation_Nc)
        kept.append(heads_NHd[:, layer.num_heads :])
        attended_NHd = layer.attend(heads_NHd, layout)
        if layer is decoder.layers[-1]:  # nobody reads the other tokens' states
            hidden_ND, attended_NHd = hidden_ND.index_select(0, last_tokens), attended_NHd.index_select(0, last_tokens)
        hidden_ND = layer.mlp(layer.attention_output(hidden_ND, attended_NHd))
    return Prefill(
        kv_SNKd=torch.stack(kept),
        last_hidden_PD=decoder.final_norm(hidden_ND)[:num_prompts],
        starts_P=layout.starts_D[:num_prompts].cpu().numpy(),
        lengths_P=layout.lengths_D[:num_prompts].cpu().numpy(),
    )


def decode_step(decoder: Decoder, cache: KVCache, tokens_n: Tensor, columns_n: Tensor, longest: int) -> Tensor:
    """Append one token to each of the first `n` rows: post-final-norm states [n, D] that predict the next one.

    Args:
        tokens_n: int64 ids to append.
        columns_n: int64, the column that each goes to = its position = the tokens that the row holds before.
        longest: at least their maximum, known to the host.
    """
    hidden_nD = decoder.embed(tokens_n)
    rotations = decoder.rotations(columns_n, longest + 1)
    cache.reserve(longest + 1)
    cache.begin_step(columns_n)
    for index, layer in enumerate(decoder.layers):
        attended = cache.attend(index, layer.heads(hidden_nD, rotations[index]))
        hidden_nD = layer.mlp(layer.attention_output(hidden_nD, attended))
    return decoder.final_norm(hidden_nD)
