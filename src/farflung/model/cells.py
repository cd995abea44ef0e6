"""Which flat token fills each cell that attention sees, and which cell is home to each flat token: index arithmetic.

    padded   buckets of documents of similar length, each [documents, longest of them]
    packed   document after document, without padding

Letters: N flat tokens, D documents, P cells. Knows no tensors and no model.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

MAX_PADDED_PER_TOKEN = 1.25
"""A bucket has at most this many cells per real token. Lower = less wasted attention, more kernel calls."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A block of `num_documents` x `length` cells."""

    num_documents: int
    length: int

    @property
    def num_cells(self) -> int:
        return self.num_documents * self.length


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
    base_D: NDArray[np.int64]
    """Each document's first cell."""


def packed_cells(lengths_D: NDArray[np.int64], starts_D: NDArray[np.int64], prefixes: Prefixes | None) -> Cells:
    """Args as `padded_cells`."""
    base_D = np.cumsum(lengths_D) - lengths_D
    flat_of_cell_P = None
    if prefixes is not None:
        documents_P = np.repeat(np.arange(lengths_D.size), lengths_D)
        flat_of_cell_P = _flat_of(ranges(np.zeros_like(base_D), lengths_D), documents_P, starts_D, prefixes)
    return Cells(buckets=(), flat_of_cell_P=flat_of_cell_P, base_D=base_D)


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
    if np.all(lengths_D == lengths_D[0]) and lengths_D[0] % (length_multiple or 1) == 0 and prefixes is None:
        return Cells(buckets=(Bucket(lengths_D.size, int(lengths_D[0])),), flat_of_cell_P=None, base_D=starts_D)
    order_D = np.argsort(lengths_D, kind="stable")
    base_D = np.empty_like(lengths_D)
    buckets: list[Bucket] = []
    cells: list[NDArray[np.int64]] = []
    num_cells = 0
    multiple = length_multiple or 1
    padded_D = -(-lengths_D // multiple) * multiple
    ascending = padded_D[order_D]
    for first, last in _split(ascending) if length_multiple is None else _equal_ranges(ascending):
        documents = order_D[first:last]
        length = int(ascending[last - 1])
        offsets = np.minimum(np.arange(length), lengths_D[documents, None] - 1)
        cells.append(_flat_of(offsets, documents[:, None], starts_D, prefixes).ravel())
        base_D[documents] = num_cells + length * np.arange(len(documents))
        buckets.append(Bucket(len(documents), length))
        num_cells += len(documents) * length
    return Cells(buckets=tuple(buckets), flat_of_cell_P=np.concatenate(cells), base_D=base_D)


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
