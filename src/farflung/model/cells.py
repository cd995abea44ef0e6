"""Which flat token fills each cell that attention sees, and which cell is home to each flat token: index arithmetic.

    padded   buckets of documents of similar length, each [documents, longest of them]
    aligned  a bucket of documents with prefixes: own tokens begin in one column, so that the columns from there on are
             the queries, and nobody computes what the tokens of a prefix see
    packed   document after document, without padding

    p p p a a      whole, padded on the right
    . p p | b .    aligned, padded on both sides
    p p p | c c

Letters: N flat tokens, D documents, P cells. Knows no tensors and no model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

MAX_PADDED_PER_TOKEN = 1.25
"""A bucket has at most this many cells per real token. Lower = less wasted attention, more kernel calls."""


MAX_MASK_NUMBERS = 1 << 24
"""Largest mask of an aligned bucket, in scores of one head (16 MiB)."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A block of `num_documents` x `length` cells."""

    num_documents: int
    length: int
    first_query: int = 0
    """Aligned: the column in which own tokens begin."""

    @property
    def num_cells(self) -> int:
        return self.num_documents * self.length

    @property
    def num_queries(self) -> int:
        """Of each document."""
        return self.length - self.first_query


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Prefixes:
    """Where documents begin that do not begin in their own tokens."""

    starts_D: NDArray[np.int64]
    """Flat index of the first token of each document's prefix."""
    lengths_D: NDArray[np.int64]
    """Tokens of it, own ones of one other document; 0 for a document that has all of its tokens."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Cells:
    """An arrangement of documents."""

    buckets: tuple[Bucket, ...]
    """Empty when packed."""
    flat_of_cell_P: NDArray[np.int64] | None
    """None: cells are the flat tokens in their order."""
    own_D: NDArray[np.int64]
    """The cell of each document's first own token."""
    query_D: NDArray[np.int64]
    """The same among queries alone: cells without the columns before `first_query`."""
    masks: tuple[NDArray[np.bool_] | None, ...] = ()
    """Per bucket; [documents, 1, queries, length] of an aligned one: True where a query sees a cell."""


def packed_cells(lengths_D: NDArray[np.int64], starts_D: NDArray[np.int64], prefixes: Prefixes | None) -> Cells:
    """Args as `padded_cells`."""
    first_D = np.cumsum(lengths_D) - lengths_D
    if prefixes is None:
        return Cells(buckets=(), flat_of_cell_P=None, own_D=first_D, query_D=first_D)
    documents_P = np.repeat(np.arange(lengths_D.size), lengths_D)
    flat_of_cell_P = _flat_of(ranges(np.zeros_like(first_D), lengths_D), documents_P, starts_D, prefixes)
    own_D = first_D + prefixes.lengths_D
    return Cells(buckets=(), flat_of_cell_P=flat_of_cell_P, own_D=own_D, query_D=own_D)


def padded_cells(
    lengths_D: NDArray[np.int64],
    starts_D: NDArray[np.int64],
    length_multiple: int | None,
    prefixes: Prefixes | None,
) -> Cells:
    """Buckets in order of length.

    Args:
        lengths_D: of whole documents, prefixes included.
        starts_D: flat index of each document's first own token.
        length_multiple: as `SequenceLayout.from_lengths`.
    """
    num_documents, length = lengths_D.size, int(lengths_D[0])
    if np.all(lengths_D == length) and length % (length_multiple or 1) == 0 and prefixes is None:
        return Cells(
            buckets=(Bucket(num_documents, length),),
            flat_of_cell_P=None,
            own_D=starts_D,
            query_D=starts_D,
            masks=(None,),
        )
    prefix_D = np.zeros_like(lengths_D) if prefixes is None else prefixes.lengths_D
    own_D, query_D = np.empty_like(lengths_D), np.empty_like(lengths_D)
    buckets: list[Bucket] = []
    cells: list[NDArray[np.int64]] = []
    masks: list[NDArray[np.bool_] | None] = []
    num_cells = num_queries = 0
    for documents, length in _similar(lengths_D, prefix_D, length_multiple):
        bucket = _bucket(lengths_D[documents], prefix_D[documents], length)
        # Where the document begins in its row: own tokens of aligned ones begin together, whole ones at 0.
        first = bucket.first_query - prefix_D[documents] if bucket.first_query else np.zeros_like(documents)
        offsets = np.clip(np.arange(bucket.length) - first[:, None], 0, lengths_D[documents, None] - 1)
        cells.append(_flat_of(offsets, documents[:, None], starts_D, prefixes).ravel())
        own_column = first + prefix_D[documents]
        rows = np.arange(len(documents))
        own_D[documents] = num_cells + bucket.length * rows + own_column
        query_D[documents] = num_queries + bucket.num_queries * rows + own_column - bucket.first_query
        buckets.append(bucket)
        masks.append(_mask(bucket, first) if bucket.first_query else None)
        num_cells += bucket.num_cells
        num_queries += len(documents) * bucket.num_queries
    return Cells(
        buckets=tuple(buckets),
        flat_of_cell_P=np.concatenate(cells),
        own_D=own_D,
        query_D=query_D,
        masks=tuple(masks),
    )


def _similar(
    lengths_D: NDArray[np.int64], prefix_D: NDArray[np.int64], length_multiple: int | None
) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Documents that share a bucket, and the length of the longest, rounded up; those with a prefix apart."""
    multiple = length_multiple or 1
    padded_D = -(-lengths_D // multiple) * multiple
    order_D = np.argsort(lengths_D, kind="stable")
    for some in (order_D[prefix_D[order_D] == 0], order_D[prefix_D[order_D] > 0]):
        ascending = padded_D[some]
        if len(some):
            for first, last in _split(ascending) if length_multiple is None else _equal_ranges(ascending):
                yield some[first:last], int(ascending[last - 1])


def _bucket(lengths: NDArray[np.int64], prefix: NDArray[np.int64], length: int) -> Bucket:
    """Aligned where that is less arithmetic and the mask is small."""
    first_query = int(prefix.max())
    num_queries = max(1, int((lengths - prefix).max()))
    num_scores = num_queries * (first_query + num_queries)
    if first_query and num_scores < length * length and num_scores * lengths.size <= MAX_MASK_NUMBERS:
        return Bucket(lengths.size, first_query + num_queries, first_query)
    return Bucket(lengths.size, length)


def _mask(bucket: Bucket, first: NDArray[np.int64]) -> NDArray[np.bool_]:
    """A query sees from where its document begins to itself; one mask for all where all begin together."""
    columns = np.arange(bucket.length)
    causal = columns <= columns[bucket.first_query :, None]
    begin = first[:1] if np.all(first == first[0]) else first
    return (causal & (columns >= begin[:, None, None]))[:, None]


def _flat_of(
    offsets: NDArray[np.int64],
    documents: NDArray[np.int64],
    starts_D: NDArray[np.int64],
    prefixes: Prefixes | None,
) -> NDArray[np.int64]:
    """Flat indices of offsets into whole documents."""
    if prefixes is None:
        own: NDArray[np.int64] = starts_D[documents] + offsets
        return own
    length = prefixes.lengths_D[documents]
    return np.where(offsets < length, prefixes.starts_D[documents] + offsets, starts_D[documents] + offsets - length)


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, ... of each range, one range after another."""
    first = np.cumsum(lengths) - lengths
    numbers: NDArray[np.int64] = np.repeat(starts - first, lengths) + np.arange(lengths.sum())
    return numbers


def _equal_ranges(ascending: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges of equal numbers."""
    bounds = [0, *(np.flatnonzero(np.diff(ascending)) + 1).tolist(), len(ascending)]
    return list(pairwise(bounds))


def _split(ascending: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges of the sorted lengths, each within `MAX_PADDED_PER_TOKEN`; cut where the fewest cells remain."""
    pending = [(0, len(ascending))]
    ranges: list[tuple[int, int]] = []
    while pending:
        first, last = pending.pop()
        part = ascending[first:last]
        if len(part) * part[-1] <= MAX_PADDED_PER_TOKEN * part.sum():
            ranges.append((first, last))
            continue
        left = np.arange(1, len(part))
        cut = first + 1 + int(np.argmin(left * part[:-1] + (len(part) - left) * part[-1]))
        pending += [(cut, last), (first, cut)]
    return ranges
