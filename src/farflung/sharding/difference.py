"""What one weights file changes of another, tensor by tensor, bit by bit, and how much there is to say about it.

    density      share of a tensor's elements whose bits changed
    information  sum over tensors of n * H(density)      which elements
                 + the entropy of how far they moved       (`moves`; over all tensors together)

No lossless code that knows no more than these two statistics is shorter, so it is what a patch is held against. Moves
of 4-byte elements are counted as the patch codes them, by symbol and low bits; of 8-byte elements, which no patch
codes element by element, the new values are counted as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from farflung.sharding.file_layout import TensorSpan, read_layout
from farflung.sharding.moves import MAX_CLASS, NUM_DIRECT, moves_between, to_symbols
from farflung.sharding.patch_build import SPARSE_TYPES

_NARROW_BYTES = 2
"""Elements up to here have so few moves that each is counted by itself."""
_SPAN = 1 << (8 * _NARROW_BYTES)


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorDifference:
    """One tensor of both files."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_elements: int
    num_changed: int

    @property
    def density(self) -> float:
        return self.num_changed / self.num_elements if self.num_elements else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Two weights files, or two sets of them."""

    tensors: Sequence[TensorDifference]
    """In the order of the new file."""
    information_bytes: float
    only_old: Sequence[str] = ()
    only_new: Sequence[str] = ()
    recast: Mapping[str, str] = field(default_factory=dict)
    """Tensor -> "BF16 [2, 3] -> F32 [2, 3]", of those that have another type or shape."""

    @property
    def num_elements(self) -> int:
        return sum(tensor.num_elements for tensor in self.tensors)

    @property
    def num_changed(self) -> int:
        return sum(tensor.num_changed for tensor in self.tensors)

    @property
    def density(self) -> float:
        return self.num_changed / self.num_elements if self.num_elements else 0.0


@dataclass(frozen=True, slots=True)
class Located:
    """A tensor and the file that it lies in."""

    span: TensorSpan
    data: bytes | bytearray | memoryview

    def elements(self, item_type: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        return np.frombuffer(self.data, item_type, self.span.num_elements, self.span.start)


def compare(old: Sequence[bytes | bytearray | memoryview], new: Sequence[bytes | bytearray | memoryview]) -> Difference:
    """Compare the tensors of same name; each side may be spread over several files.

    Raises:
        PeerFault: a file is no safetensors file.
    """
    before, after = _located(old), _located(new)
    shared = [name for name in after if name in before]
    recast = {name: text for name in shared if (text := _recast(before[name].span, after[name].span))}
    counter = _MoveCounter()
    tensors = [_compare_one(before[name], after[name], counter) for name in shared if name not in recast]
    positions_bits = sum(tensor.num_elements * _entropy([tensor.density, 1 - tensor.density]) for tensor in tensors)
    return Difference(
        tensors=tensors,
        information_bytes=(positions_bits + counter.bits) / 8,
        only_old=[name for name in before if name not in after],
        only_new=[name for name in after if name not in before],
        recast=recast,
    )


class _MoveCounter:
    """Histograms of moves over all tensors."""

    def __init__(self) -> None:
        self._narrow = np.zeros(2 * _SPAN + 1, np.int64)
        self._symbols = np.zeros(2 * NUM_DIRECT + 2 * (MAX_CLASS + 1), np.int64)
        self._plain_bits = 0.0

    def add(self, old: NDArray[np.unsignedinteger], new: NDArray[np.unsignedinteger]) -> None:
        """Elements that changed."""
        moves = moves_between(old, new)
        if old.dtype.itemsize <= _NARROW_BYTES:
            self._narrow += np.bincount(moves + _SPAN, minlength=len(self._narrow))
            return
        symbols, large = to_symbols(moves)
        self._symbols += np.bincount(symbols, minlength=len(self._symbols))
        self._plain_bits += float(np.log2(large.astype(np.float64)).sum())

    def add_plain(self, num_changed: int, item_bytes: int) -> None:
        self._plain_bits += 8.0 * item_bytes * num_changed

    @property
    def bits(self) -> float:
        return self._plain_bits + _total_bits(self._narrow) + _total_bits(self._symbols)


def _compare_one(before: Located, after: Located, counter: _MoveCounter) -> TensorDifference:
    span = after.span
    item_type = SPARSE_TYPES.get(span.item_bytes)
    old, new = (located.elements(item_type or np.uint64) for located in (before, after))
    indices = np.flatnonzero(old != new)
    if item_type is None:
        counter.add_plain(len(indices), span.item_bytes)
    elif len(indices):
        counter.add(old[indices], new[indices])
    return TensorDifference(
        name=span.name, dtype=span.dtype, shape=span.shape, num_elements=span.num_elements, num_changed=len(indices)
    )


def _located(files: Sequence[bytes | bytearray | memoryview]) -> dict[str, Located]:
    return {span.name: Located(span, data) for data, spans in _layouts(files) for span in spans}


def _layouts(
    files: Sequence[bytes | bytearray | memoryview],
) -> Iterator[tuple[bytes | bytearray | memoryview, tuple[TensorSpan, ...]]]:
    return ((data, read_layout(data)) for data in files)


def _recast(before: TensorSpan, after: TensorSpan) -> str:
    if (before.dtype, before.shape) == (after.dtype, after.shape):
        return ""
    return f"{before.dtype} {list(before.shape)} -> {after.dtype} {list(after.shape)}"


def _total_bits(counts: NDArray[np.int64]) -> float:
    total = int(counts.sum())
    return total * _entropy((counts[counts > 0] / total).tolist()) if total else 0.0


def _entropy(shares: Sequence[float]) -> float:
    """Bits."""
    positive = np.array([share for share in shares if share > 0])
    return float(-(positive * np.log2(positive)).sum())
