"""From a layout, whose documents may begin in each other, to blocks of whole documents padded on the right.

Letters: N flat tokens, D documents, W tokens of whole documents end to end, P padded cells of all blocks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from farflung.model.cells import Bucket
from farflung.model.layout import SequenceLayout


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Whole:
    """Blocks of similar length."""

    buckets: tuple[Bucket, ...]
    token_of_cell_P: Tensor
    """int64; which flat token fills a cell."""
    cell_of_flat_N: Tensor
    """int64; the cell of each flat token in its own document."""


def whole_documents(layout: SequenceLayout) -> Whole:
    """Every document with its prefix, whatever the layout's own arrangement is."""
    device = layout.starts_D.device
    ends_D = torch.cat((layout.starts_D[1:], layout.starts_D.new_tensor([layout.num_tokens])))
    own_D = ends_D - layout.starts_D
    prefix_D = layout.lengths_D - own_D
    blocks = SequenceLayout.from_lengths(layout.lengths_D.cpu().numpy(), device)
    token_of_W = torch.empty(blocks.num_tokens, dtype=torch.int64, device=device)
    own_of_W = blocks.positions_N >= prefix_D.repeat_interleave(layout.lengths_D)
    own_W = own_of_W.nonzero().squeeze(1)
    token_of_W[own_W] = torch.arange(layout.num_tokens, device=device)
    if layout.prefix_flat_E is not None:
        token_of_W[(~own_of_W).nonzero().squeeze(1)] = layout.prefix_flat_E
    if blocks.flat_of_cell_P is None or blocks.cell_of_flat_N is None:  # one block without padding
        return Whole(buckets=blocks.buckets, token_of_cell_P=token_of_W, cell_of_flat_N=own_W)
    return Whole(
        buckets=blocks.buckets,
        token_of_cell_P=token_of_W.index_select(0, blocks.flat_of_cell_P),
        cell_of_flat_N=blocks.cell_of_flat_N.index_select(0, own_W),
    )
