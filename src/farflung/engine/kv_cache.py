"""Keys and values of the rows in flight, preallocated; a row starts at column 0 and grows to the right.

Live rows are always rows 0 .. n - 1: when a row ends, the last live row moves into its place. The columns in use are
those up to the longest live row, rounded up, and they lie without gaps: when they grow (every 16 steps) each layer is
laid out anew in a spare block. So a decode step reads one dense block; reading it through a slice of wider rows
is five times slower on a CPU, because every short run of columns starts the hardware's prefetch afresh.
Columns that a row has not filled are masked; in layers with a window also those that lie too far back.

Letters: R rows, n of them live, H query heads, K key/value heads, G = H / K, L columns in use, d head size, A rows that
join. This module knows no tokens, no prompts and no draws.
"""

import torch
from torch import Tensor

from farflung.model.config import ModelConfig

COLUMN_MULTIPLE = 16
"""Columns in use are a multiple of this: whole vector registers in the softmax, and sums whose order does not depend
on the longest row of the batch, so a row's logits keep their bits whatever else is in flight."""
MIN_ELEMENTS_READ = 512
"""Fewest elements per head that attention reads: below 400, torch's batched product takes a slow path with another
order of summation."""


class KVCache:
    """One block [2, R, K, L, d] of keys and values per layer."""

    def __init__(
        self, config: ModelConfig, *, num_rows: int, max_columns: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.num_rows = num_rows
        self._min_columns = _round_up(-(-MIN_ELEMENTS_READ // config.head_dim), COLUMN_MULTIPLE)
        self.max_columns = max(_round_up(max_columns, COLUMN_MULTIPLE), self._min_columns)
        self._num_heads, self._num_kv_heads, self._head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self._scale = config.score_scale
        self._windows = [config.window_of(layer) for layer in range(config.num_layers)]
        self._biases: dict[int | None, Tensor] = {}
        self._elements_per_column = 2 * num_rows * config.num_kv_heads * config.head_dim
        # Zeros, because masked columns are multiplied by a probability of 0 and must be finite.
        self._storage = torch.zeros(
            config.num_layers + 1, self._elements_per_column * self.max_columns, dtype=dtype, device=device
        )
        self._places = list(range(config.num_layers))
        self._columns = torch.arange(self.max_columns, device=device)
        self._empty, self._filled = (torch.tensor(bias, dtype=dtype, device=device) for bias in (-torch.inf, 0.0))
        self._num_columns = 0
        self._blocks: list[Tensor] = []
        self._flat: list[Tensor] = []
        self._first_cells = torch.empty(0)
        self._num_viewed = 0
        self._views: list[tuple[Tensor, Tensor]] = []
        self.restart()

    def restart(self) -> None:
        """Begin anew with no rows; what is left of old ones is masked, never read."""
        self._lay_out(self._min_columns)

    def clear(self) -> None:
        """Erase every key and value: those of broken weights may not be finite. The memory is kept."""
        with torch.inference_mode():
            self._storage.zero_()

    def reserve(self, num_columns: int) -> None:
        """Make room for `num_columns` per row; far too much room is given up, as it would be read at every step."""
        needed = max(_round_up(num_columns, COLUMN_MULTIPLE), self._min_columns)
        if self._num_columns // 2 < needed <= self._num_columns:
            return
        kept = min(needed, self._num_columns)
        old_blocks, spare = self._blocks, next(i for i in range(len(self._storage)) if i not in self._places)
        for layer, old in enumerate(old_blocks):
            self._view(spare, needed)[..., :kept, :] = old[..., :kept, :]
            self._places[layer], spare = spare, self._places[layer]
        self._lay_out(needed)

    def begin_step(self, lengths_n: Tensor) -> None:
        """Open a reserved column for one more token of each of the first `n` rows, which hold `lengths_n` (int64)."""
        num_live = len(lengths_n)
        if self._num_viewed != num_live:
            self._num_viewed = num_live
            heads = [block.flatten(1, 2)[:, : num_live * self._num_kv_heads] for block in self._blocks]
            self._views = [(keys.transpose(1, 2), values) for keys, values in heads]
        self._biases = {window: self._bias(lengths_n.unsqueeze(1), window) for window in set(self._windows)}
        self._cells = (self._first_cells[:num_live] + lengths_n.unsqueeze(1)).view(-1)

    def attend(self, layer: int, heads_nHd: Tensor) -> Tensor:
        """Store the new token's key and value, then attend over everything that the row holds.

        Args:
            heads_nHd: [n, H + 2K, d]: queries, keys and values side by side.

        Returns:
            [n, H * d].
        """
        num_live = len(heads_nHd)
        self._flat[layer].index_copy_(0, self._cells, heads_nHd[:, self._num_heads :].reshape(-1, self._head_dim))
        keys, values = self._views[layer]
        query = heads_nHd[:, : self._num_heads].reshape(num_live * self._num_kv_heads, -1, self._head_dim)
        scores = torch.baddbmm(self._biases[self._windows[layer]], query, keys, alpha=self._scale)
        return torch.bmm(torch.softmax(scores, dim=-1), values).view(num_live, -1)

    def _bias(self, lengths_n1: Tensor, window: int | None) -> Tensor:
        """[n * K, G, L]: 0 at columns that a row's new token sees, -inf elsewhere."""
        columns_L = self._columns[: self._num_columns]
        is_hidden_nL = columns_L > lengths_n1
        if window is not None:
            is_hidden_nL |= columns_L <= lengths_n1 - window
        bias_nL = torch.where(is_hidden_nL, self._empty, self._filled)
        bias_nHL = bias_nL.unsqueeze(1).expand(-1, self._num_heads, -1)
        return bias_nHL.reshape(len(lengths_n1) * self._num_kv_heads, -1, self._num_columns)

    def insert(self, first_row: int, kv_SNKd: Tensor, tokens_AP: Tensor) -> None:
        """Fill rows `first_row` .. `first_row + A - 1` with prompts, in reserved columns.

        Args:
            kv_SNKd: [layers, N, 2K, d], keys and values side by side of N flat prompt tokens.
            tokens_AP: int64, the flat tokens of each joining row, padded on the right by any token.
        """
        num_joining, longest = tokens_AP.shape
        rows = slice(first_row, first_row + num_joining)
        for block, kv_NKd in zip(self._blocks, kv_SNKd, strict=True):
            heads = kv_NKd.index_select(0, tokens_AP.view(-1)).view(
                num_joining, longest, 2, self._num_kv_heads, self._head_dim
            )
            block[:, rows, :, :longest] = heads.permute(2, 0, 3, 1, 4)

    def move(self, targets: Tensor, sources: Tensor) -> None:
        """Copy rows onto others (int64 row indices, equal number, disjoint)."""
        for block in self._blocks:
            block.index_copy_(1, targets, block.index_select(1, sources))

    def _lay_out(self, num_columns: int) -> None:
        """Take the storage as dense blocks of `num_columns`."""
        self._num_columns, self._num_viewed = num_columns, 0
        self._blocks = [self._view(place, num_columns) for place in self._places]
        self._flat = [block.view(-1, self._head_dim) for block in self._blocks]
        cells = torch.arange(2 * self.num_rows * self._num_kv_heads, device=self._storage.device) * num_columns
        self._first_cells = cells.view(2, self.num_rows, -1).transpose(0, 1).flatten(1).contiguous()  # [R, 2K]

    def _view(self, place: int, num_columns: int) -> Tensor:
        used = self._storage[place, : self._elements_per_column * num_columns]
        return used.view(2, self.num_rows, self._num_kv_heads, num_columns, self._head_dim)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
