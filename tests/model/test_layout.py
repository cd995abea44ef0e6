"""Documents of different lengths, flat and padded."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from farflung.model.cells import MAX_PADDED_PER_TOKEN, Bucket, Prefixes
from farflung.model.layout import SequenceLayout

_LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def _documents_in_buckets(layout: SequenceLayout, flat: Tensor) -> list[list[float]]:
    """Rows of the padded blocks, cut to each document's length, in the order of the documents."""
    rows = [row.flatten().tolist() for block in layout.pad(flat) for row in block]
    order = np.argsort(layout.lengths_D.numpy(), kind="stable")
    documents: list[list[float]] = [[] for _ in rows]
    for row, document in zip(rows, order, strict=True):
        documents[document] = row[: int(layout.lengths_D[document])]
    return documents


def test_three_documents_lie_where_they_should() -> None:
    layout = SequenceLayout.from_lengths([2, 1, 2])
    assert layout.num_tokens == 5
    assert layout.positions_N.tolist() == [0, 1, 0, 0, 1]
    assert layout.starts_D.tolist() == [0, 2, 3]
    assert layout.buckets == (Bucket(3, 2),)
    flat = torch.arange(5.0).view(5, 1, 1)
    (block,) = layout.pad(flat)
    # Document 1 is the shortest and comes first; its padding repeats its last token.
    assert block.squeeze().tolist() == [[2, 2], [0, 1], [3, 4]]


def test_equal_lengths_need_no_gather() -> None:
    layout = SequenceLayout.from_lengths([3, 3])
    flat = torch.arange(6.0).view(6, 1, 1)
    (block,) = layout.pad(flat)
    assert block.data_ptr() == flat.data_ptr()
    assert layout.unpad([block.flatten(0, 1)]).data_ptr() == flat.data_ptr()


@given(_LENGTHS)
def test_padding_and_back_gives_every_document_unchanged(lengths: list[int]) -> None:
    layout = SequenceLayout.from_lengths(lengths)
    flat = torch.arange(float(sum(lengths))).view(-1, 1, 1)
    blocks = layout.pad(flat)
    assert [block.shape[:2] for block in blocks] == [(b.num_documents, b.length) for b in layout.buckets]
    assert _documents_in_buckets(layout, flat) == [part.flatten().tolist() for part in flat.split(lengths)]
    assert torch.equal(layout.unpad([block.flatten(0, 1) for block in blocks]), flat)
    assert layout.positions_N.tolist() == [position for length in lengths for position in range(length)]


@given(_LENGTHS)
def test_padding_stays_within_its_bound(lengths: list[int]) -> None:
    layout = SequenceLayout.from_lengths(lengths)
    ascending = sorted(lengths)
    for bucket in layout.buckets:
        members, ascending = ascending[: bucket.num_documents], ascending[bucket.num_documents :]
        assert bucket.num_cells <= MAX_PADDED_PER_TOKEN * sum(members)
    assert ascending == []


def test_gradients_of_real_tokens_come_back_to_them_and_padding_gets_none() -> None:
    layout = SequenceLayout.from_lengths([2, 1, 2])
    flat = torch.randn(5, 2, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(5, 2, 2, dtype=torch.float64)
    cells = [block.flatten(0, 1) for block in layout.pad(flat)]
    cells[0].retain_grad()
    (layout.unpad(cells) * weights).sum().backward()
    assert flat.grad is not None
    assert torch.equal(flat.grad, weights)
    assert cells[0].grad is not None
    assert torch.equal(cells[0].grad[1], torch.zeros(2, 2, dtype=torch.float64))


@pytest.mark.parametrize("lengths", [[], [3, 0], [-1]])
def test_a_document_needs_a_token(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        SequenceLayout.from_lengths(lengths)


def test_prefixes_lie_before_own_tokens_and_are_no_queries() -> None:
    """Flat: p q r a b | c d | e. Documents 1 (p q r c d) and 2 (p q e) begin in document 0."""
    prefixes = Prefixes(starts_D=np.array([0, 0, 0]), lengths_D=np.array([0, 3, 2]))
    layout = SequenceLayout.from_lengths([5, 2, 1], prefixes=prefixes)
    assert layout.positions_N.tolist() == [0, 1, 2, 3, 4, 3, 4, 2]
    assert (layout.starts_D.tolist(), layout.lengths_D.tolist()) == ([0, 5, 7], [5, 5, 3])
    assert layout.buckets == (Bucket(1, 5), Bucket(2, 5, 3))
    flat = torch.arange(8.0).view(8, 1, 1)
    whole, aligned = layout.pad(flat)
    assert whole.flatten().tolist() == [0, 1, 2, 3, 4]
    assert aligned.squeeze().tolist() == [[0, 0, 1, 7, 7], [0, 1, 2, 5, 6]]
    mask = layout.masks[1]
    assert layout.masks[0] is None
    assert mask is not None
    assert mask.int().squeeze().tolist() == [
        [[0, 1, 1, 1, 0], [0, 1, 1, 1, 1]],
        [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    ]
    assert torch.equal(layout.unpad([whole[0], aligned[:, 3:].flatten(0, 1)]), flat)


def test_what_documents_learn_about_their_prefix_adds_up() -> None:
    prefixes = Prefixes(starts_D=np.array([0, 0, 1]), lengths_D=np.array([0, 2, 2]))
    layout = SequenceLayout.from_lengths([3, 1, 1], prefixes=prefixes)
    flat = torch.zeros(5, 1, 1, requires_grad=True)
    grads = [torch.where(_is_padding(block), 0.0, 1.0) for block in layout.pad(torch.arange(5.0).view(5, 1, 1))]
    torch.autograd.backward(layout.pad(flat), grads)
    assert flat.grad is not None
    assert flat.grad.flatten().tolist() == [2, 3, 2, 1, 1]


def _is_padding(block: Tensor) -> Tensor:
    """Repeats of the token before, in a block of flat indices."""
    return torch.cat((torch.zeros_like(block[:, :1], dtype=torch.bool), block[:, 1:] == block[:, :-1]), dim=1)
