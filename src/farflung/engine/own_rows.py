"""Rows of the own decoder: one dense cache, every row in one product. Implements `engine.rows.Rows`."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.engine.forward import MIN_BATCH_ROWS, Prefill, decode_step, prefill
from farflung.engine.kv_cache import KVCache
from farflung.engine.rows import Indices
from farflung.model.decoder import Decoder


class OwnRows:
    """`fit` before anything else."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        decoder.packs_weights = True  # those that are loaded from now on: a step multiplies few rows by all of them
        self._cache: KVCache | None = None

    @property
    def head_weight(self) -> Tensor:
        """[V, D]."""
        return self._decoder.lm_head_weight

    def fit(self, num_rows: int, num_columns: int) -> None:
        """The cache of the last call if it is large enough: old contents are masked, never read."""
        num_rows = max(num_rows, MIN_BATCH_ROWS)
        cache = self._cache
        if cache is None or cache.num_rows < num_rows or cache.max_columns < num_columns:
            if cache is not None:
                num_rows, num_columns = max(num_rows, cache.num_rows), max(num_columns, cache.max_columns)
            weights = self._decoder.embed_tokens
            cache = KVCache(
                self._decoder.config,
                num_rows=num_rows,
                max_columns=num_columns,
                dtype=weights.dtype,
                device=weights.device,
            )
            self._cache = cache
        cache.restart()

    def clear(self) -> None:
        """Erase keys and values that the old weights made."""
        if self._cache is not None:
            self._cache.clear()

    def prefill(self, prompts: Sequence[NDArray[np.int32]]) -> Prefill:
        """Run prompts through the decoder, each once."""
        return prefill(self._decoder, prompts)

    def insert(self, first_row: int, prompts: Prefill, prompt_of_row_A: Indices, longest: int) -> None:
        """As `Rows.insert`."""
        assert self._cache is not None
        lengths_A = prompts.lengths_P[prompt_of_row_A]
        offsets = np.minimum(np.arange(lengths_A.max()), lengths_A[:, None] - 1)
        tokens_AP = torch.from_numpy(prompts.starts_P[prompt_of_row_A][:, None] + offsets)
        self._cache.reserve(longest)
        self._cache.insert(first_row, prompts.kv_SNKd, tokens_AP.to(self._decoder.embed_tokens.device))

    def decode(self, tokens_R: Tensor, columns_R: Tensor, num_live: int, longest: int) -> Tensor:
        """As `Rows.decode`; rows up to `MIN_BATCH_ROWS` run along, so what is in them must lie inside the cache."""
        assert self._cache is not None
        num_run = max(num_live, MIN_BATCH_ROWS)
        return decode_step(self._decoder, self._cache, tokens_R[:num_run], columns_R[:num_run], longest)

    def move(self, targets: Tensor, sources: Tensor) -> None:
        """As `Rows.move`."""
        assert self._cache is not None
        self._cache.move(targets, sources)
