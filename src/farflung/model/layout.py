"""How documents of different lengths share one padding-free tensor.

Documents lie one after another in a flat [N, ...] tensor, in the order given. Only attention needs them apart: it
sees [documents, longest] cells, padded on the right, in buckets of similar length so that at most a fifth of the
cells of a bucket are padding. A layout that is packed has cells without padding instead, document after document.

A document may begin with tokens that lie in another one (rollouts of one prompt): those are computed once for all of
them, attention sees them in each, and what each learns about them adds up.

    flat     p p p a a | b b b     second document: prefix p p p, then its own b b b
    cells    p p p a a 0
             p p p b b b

Letters: N flat tokens, D documents, P padded cells of all buckets together. This module knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.model.cells import Bucket, Prefixes, packed_cells, padded_cells, ranges


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class SequenceLayout:
    """Where every token of a batch of documents is, flat and padded."""

    num_tokens: int
    max_length: int
    positions_N: Tensor
    """int64; restarts with each document, at 0 or behind its prefix."""
    starts_D: Tensor
    """int64; flat index of each document's first own token."""
    lengths_D: Tensor
    """int64; with the prefix."""
    buckets: tuple[Bucket, ...]
    flat_of_cell_P: Tensor | None
    """int64; which flat token fills a padded cell (padding repeats the document's last). None: cells = flat order."""
    cell_of_flat_N: Tensor | None
    """int64; the inverse: the padded cell of each flat token."""
    query_of_flat_N: Tensor | None
    """int64; the same among queries alone, which are what attention gives back."""
    masks: tuple[Tensor | None, ...] = ()
    """Per bucket; bool [documents, 1, queries, length] of an aligned one: True where a query sees a cell."""
    prefix_flat_E: Tensor | None = None
    """int64; the flat token behind each cell of a prefix. None: every document has all of its tokens."""
    prefix_cell_E: Tensor | None = None
    """int64; those cells."""
    bounds_D1: Tensor | None = None
    """int32 [D + 1]; packed: the cells of document i are bounds[i] to bounds[i + 1]. None: padded, in buckets."""

    @classmethod
    def from_lengths(
        cls,
        lengths: Sequence[int] | NDArray[np.integer],
        device: torch.device | str = "cpu",
        *,
        length_multiple: int | None = None,
        prefixes: Prefixes | None = None,
        is_packed: bool = False,
    ) -> Self:
        """Lay out documents of the given lengths (tokens).

        Args:
            lengths: of what lies in the flat tensor for each; with a prefix it may be 0.
            prefixes: where each document begins, if that is in another one.
            is_packed: without padding, for attention that takes documents end to end; no buckets then.
            length_multiple: None: documents of similar length share a bucket, for speed. A number: a bucket holds the
                documents that round up to one multiple of it and has that length, so that the attention of a document
                does not depend, in its last bits, on the documents beside it.

        Raises:
            ValueError: no document, or one without tokens.
        """
        own_D = np.asarray(lengths, dtype=np.int64)
        prefix_D = np.zeros_like(own_D) if prefixes is None else prefixes.lengths_D
        lengths_D = own_D + prefix_D
        if lengths_D.ndim != 1 or not lengths_D.size or lengths_D.min() < 1:
            raise ValueError(f"document lengths {lengths!r}: at least one is needed, each of at least one token")
        ends_D = np.cumsum(own_D)
        starts_D = ends_D - own_D
        num_tokens = int(ends_D[-1])
        positions_N = np.arange(num_tokens) - np.repeat(starts_D - prefix_D, own_D)
        arranged = (
            packed_cells(lengths_D, starts_D, prefixes)
            if is_packed
            else padded_cells(lengths_D, starts_D, length_multiple, prefixes)
        )
        is_moved = arranged.flat_of_cell_P is not None

        def tensor(array: NDArray[np.integer] | None) -> Tensor | None:
            return None if array is None else torch.from_numpy(array).to(device)

        return cls(
            num_tokens=num_tokens,
            max_length=int(lengths_D.max()),
            positions_N=torch.from_numpy(positions_N).to(device),
            starts_D=torch.from_numpy(starts_D).to(device),
            lengths_D=torch.from_numpy(lengths_D).to(device),
            buckets=arranged.buckets,
            flat_of_cell_P=tensor(arranged.flat_of_cell_P),
            cell_of_flat_N=tensor(ranges(arranged.own_D, own_D)) if is_moved else None,
            query_of_flat_N=tensor(ranges(arranged.query_D, own_D)) if is_moved else None,
            masks=tuple(None if mask is None else torch.from_numpy(mask).to(device) for mask in arranged.masks),
            prefix_flat_E=None if prefixes is None else tensor(ranges(prefixes.starts_D, prefix_D)),
            prefix_cell_E=None if prefixes is None else tensor(ranges(arranged.own_D - prefix_D, prefix_D)),
            bounds_D1=tensor(np.cumsum([0, *lengths_D], dtype=np.int32)) if is_packed else None,
        )

    def pad(self, flat_NHd: Tensor) -> list[Tensor]:
        """[N, heads, d] -> per bucket [documents, length, heads, d]; for causal attention only (see `_Pad`)."""
        blocks = torch.split(self.cells(flat_NHd), [bucket.num_cells for bucket in self.buckets])
        return [
            block.unflatten(0, (bucket.num_documents, bucket.length))
            for bucket, block in zip(self.buckets, blocks, strict=True)
        ]

    def cells(self, flat_NHd: Tensor) -> Tensor:
        """[N, heads, d] -> [P, heads, d], what attention sees."""
        if self.flat_of_cell_P is not None:
            flat_NHd = _Pad.apply(flat_NHd, self)  # type: ignore[no-untyped-call]
        return flat_NHd

    def unpad(self, blocks: Sequence[Tensor]) -> Tensor:
        """Per bucket [documents * queries, ...] -> [N, ...], without the padding."""
        cells = blocks[0] if len(blocks) == 1 else torch.cat(list(blocks))
        if self.query_of_flat_N is not None:
            cells = _Unpad.apply(cells, self.query_of_flat_N)  # type: ignore[no-untyped-call]
        return cells


class _Pad(torch.autograd.Function):
    """Row gather whose gradient is the inverse gather (autograd's own is a scatter-add, several times slower), plus
    what the cells of prefixes give to the tokens behind them.

    The same gradient as long as padding cells receive none: no real token attends to padding, and `_Unpad` gives
    padding cells a gradient of zero.
    """

    @staticmethod
    def forward(ctx: Any, flat_NC: Tensor, layout: SequenceLayout) -> Tensor:
        assert layout.flat_of_cell_P is not None
        ctx.layout = layout
        return flat_NC.index_select(0, layout.flat_of_cell_P)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        layout: SequenceLayout = ctx.layout
        assert layout.cell_of_flat_N is not None
        grad_NC = grads[0].index_select(0, layout.cell_of_flat_N)
        if layout.prefix_flat_E is not None and layout.prefix_cell_E is not None:
            grad_NC.index_add_(0, layout.prefix_flat_E, grads[0].index_select(0, layout.prefix_cell_E))
        return grad_NC, None


class _Unpad(torch.autograd.Function):
    """Row gather that drops padding cells; their gradient is zero."""

    @staticmethod
    def forward(ctx: Any, cells_PC: Tensor, query_of_flat_N: Tensor) -> Tensor:
        ctx.save_for_backward(query_of_flat_N)
        ctx.cells_shape = cells_PC.shape
        return cells_PC.index_select(0, query_of_flat_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (query_of_flat_N,) = ctx.saved_tensors
        return grads[0].new_zeros(ctx.cells_shape).index_copy_(0, query_of_flat_N, grads[0]), None
