"""Gumbel noise for the next few tokens of every row, made in one go.

A small vocabulary pays for calling kernels, not for arithmetic: eight steps of noise for 64 rows x 64 ids cost less
than three times one step. A row that joins, or moves, between two blocks brings its own noise along.

Letters: n live rows, V vocabulary, B steps of a block. Knows no seeds and no draws.
"""

import torch
from torch import Tensor

from farflung.proofs.draws import gumbel_noise, padded

BLOCK_ELEMENTS = 1 << 16
"""A block has at most about this many elements, or one step."""
MAX_BLOCK_STEPS = 8
"""Longer blocks save little and waste noise on completions that end inside them."""


class NoiseAhead:
    """Noise [B, rows, V]. A row's noise is that of its output cell, and the cell goes up by one per step."""

    def __init__(self, keys_of_cells: Tensor, *, num_rows: int, vocab_size: int) -> None:
        """`keys_of_cells` is int32 [cells, 2]: the position key of every output cell."""
        self._keys, self._vocab_size = keys_of_cells, vocab_size
        self._num_steps = min(MAX_BLOCK_STEPS, max(1, BLOCK_ELEMENTS // (num_rows * vocab_size)))
        self._noise = torch.empty(self._num_steps, num_rows, padded(vocab_size), device=keys_of_cells.device)
        self._step = self._num_steps  # of the block, the next to hand out

    def take(self, cells_n: Tensor) -> Tensor:
        """Noise [n, V] for the current cells of all live rows."""
        if self._step == self._num_steps:
            self._step = 0
            self._fill(0, cells_n)
        noise = self._noise[self._step, : len(cells_n), : self._vocab_size]
        self._step += 1
        return noise

    def join(self, first_row: int, cells_a: Tensor) -> None:
        """Rows from `first_row` on have joined with these cells."""
        if self._step < self._num_steps:
            self._fill(first_row, cells_a)

    def move(self, targets: Tensor, sources: Tensor) -> None:
        """Rows were copied onto others."""
        if self._step < self._num_steps:
            rest = self._noise[self._step :]
            rest.index_copy_(1, targets, rest.index_select(1, sources))

    def _fill(self, first_row: int, cells_a: Tensor) -> None:
        """The rest of the block, for rows from `first_row` on. Cells after the last are never drawn."""
        ahead = torch.arange(self._num_steps - self._step, device=cells_a.device).unsqueeze(1)
        cells = (cells_a + ahead).clamp_(max=len(self._keys) - 1)
        keys = self._keys.index_select(0, cells.view(-1))
        rows = self._noise[self._step :, first_row : first_row + len(cells_a)]
        if self._num_steps == 1:
            gumbel_noise(keys, self._vocab_size, out=rows[0])
        else:
            rows[..., : self._vocab_size] = gumbel_noise(keys, self._vocab_size).view(*cells.shape, -1)
