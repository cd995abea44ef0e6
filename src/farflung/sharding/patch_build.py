"""A weights file as a patch on the file before: only the elements whose bits changed.

Per tensor the smallest form is taken, so a patch is never larger than the file by more than its header and tables.
Moves are exact integers and the base is named by its hash, so nothing drifts however long the chain. Safetensors
headers of both files must be equal: another set of tensors is another snapshot. Does not know versions or signatures.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from farflung.sharding import rans
from farflung.sharding.file_layout import TensorSpan, read_layout
from farflung.sharding.moves import Bits, large_classes, moves_between, to_symbols
from farflung.sharding.packed_bits import packed
from farflung.sharding.patch_format import (
    LARGEST_SYMBOL,
    OVERFLOW_BITS,
    SAME,
    SPARSE,
    WHOLE,
    XOR,
    PatchHeader,
    to_bytes,
    zstd,
)
from farflung.wire.canonical import sha256_hex

Item = TypeVar("Item", bound=np.generic)

SPARSE_TYPES: dict[int, type[np.unsignedinteger]] = {1: np.uint8, 2: np.uint16, 4: np.uint32}
"""Bit patterns of elements by size; tensors of larger ones are never sparse."""

_MEAN_QUOTIENT_BITS = 3
"""Gap bits are chosen so that quotients are about 2^3 to 2^4 in the mean: few symbols, none of them improbable."""
_SPARSE_WORTH = 0.9
"""A sparse form of more than this share of the tensor is not worth the work of applying it."""


def build_patch(base: bytes, result: bytes) -> bytes | None:
    """The patch that turns one safetensors file into another; None if their tensors differ in name, type or shape."""
    spans = read_layout(base)
    if len(base) != len(result) or read_layout(result) != spans or not _same_header(base, result, spans):
        return None
    writer = _Writer()
    for span in spans:
        writer.add(span, _raw(base, span), _raw(result, span))
    return writer.finish(sha256_hex(base), sha256_hex(result), len(base))


def _same_header(base: bytes, result: bytes, spans: tuple[TensorSpan, ...]) -> bool:
    start = spans[0].start if spans else len(base)
    return base[:start] == result[:start]


def _raw(data: bytes, span: TensorSpan) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8, span.end - span.start, span.start)


class _Writer:
    """Collects the tensors of one patch."""

    def __init__(self) -> None:
        self._modes = bytearray()
        self._gap_bits = bytearray()
        self._num_changed: list[int] = []
        self._quotients: list[NDArray[np.uint8]] = []
        self._overflow: list[NDArray[np.uint64]] = []
        self._remainders: list[bytes] = []
        self._symbols: list[NDArray[np.uint8]] = []
        self._large: list[NDArray[np.uint64]] = []
        self._dense: list[bytes] = []

    def add(self, span: TensorSpan, old: NDArray[np.uint8], new: NDArray[np.uint8]) -> None:
        element = SPARSE_TYPES.get(span.item_bytes)
        if element is None:
            self._add_dense(span, old, new)
            return
        old_bits, new_bits = old.view(element), new.view(element)
        indices = np.flatnonzero(old_bits != new_bits)
        if len(indices) == 0:
            self._note(SAME, 0, 0)
        else:
            self._add_changed(span, indices, old_bits, new_bits)

    def _add_changed(self, span: TensorSpan, indices: NDArray[np.int64], old: Bits, new: Bits) -> None:
        moves = moves_between(old[indices], new[indices])
        symbols, large = to_symbols(moves)
        gap_bits = _gap_bits(span.num_elements, len(indices))
        if _sparse_bytes(span.num_elements, symbols, large) > _SPARSE_WORTH * span.num_elements * span.item_bytes:
            self._add_dense(span, old.view(np.uint8), new.view(np.uint8))
            return
        gaps = np.diff(indices, prepend=-1).astype(np.uint64) - np.uint64(1)
        quotients = gaps >> np.uint64(gap_bits)
        is_over = quotients >= LARGEST_SYMBOL
        self._quotients.append(np.where(is_over, LARGEST_SYMBOL, quotients).astype(np.uint8))
        self._overflow.append(quotients[is_over])
        self._remainders.append(packed(gaps, gap_bits))
        self._symbols.append(symbols)
        self._large.append(large)
        self._note(SPARSE, len(indices), gap_bits)

    def _add_dense(self, span: TensorSpan, old: NDArray[np.uint8], new: NDArray[np.uint8]) -> None:
        planes = (old ^ new).reshape(-1, span.item_bytes).T
        if not planes.any():
            self._note(SAME, 0, 0)
            return
        xor = zstd(np.ascontiguousarray(planes).tobytes())
        whole = new.tobytes()
        mode, data = (XOR, xor) if len(xor) < len(whole) else (WHOLE, whole)
        self._dense.append(data)
        self._note(mode, span.num_elements, 0)

    def _note(self, mode: int, num_changed: int, gap_bits: int) -> None:
        self._modes.append(mode)
        self._num_changed.append(num_changed)
        self._gap_bits.append(gap_bits)

    def finish(self, base_sha256: str, result_sha256: str, num_bytes: int) -> bytes:
        symbols = _joined(self._symbols, np.uint8)
        sections = (
            *rans.encode(_joined(self._quotients, np.uint8)),
            packed(_joined(self._overflow, np.uint64), OVERFLOW_BITS),
            b"".join(self._remainders),
            *rans.encode(symbols),
            _pack_large(large_classes(symbols), _joined(self._large, np.uint64)),
            b"".join(self._dense),
        )
        header = PatchHeader(
            base_sha256=base_sha256,
            result_sha256=result_sha256,
            num_bytes=num_bytes,
            modes=bytes(self._modes),
            num_changed=self._num_changed,
            gap_bits=bytes(self._gap_bits),
            section_bytes=[len(section) for section in sections],
            dense_bytes=[len(data) for data in self._dense],
        )
        return to_bytes(header, sections)


def _pack_large(classes: NDArray[np.int64], sizes: NDArray[np.uint64]) -> bytes:
    """Low bits of large moves, by class."""
    return b"".join(packed(sizes[classes == kind], int(kind)) for kind in np.unique(classes))


def _gap_bits(num_elements: int, num_changed: int) -> int:
    return max(0, (num_elements // num_changed).bit_length() - 1 - _MEAN_QUOTIENT_BITS)


def _sparse_bytes(num_elements: int, symbols: NDArray[np.uint8], large: NDArray[np.uint64]) -> float:
    """About what a sparse tensor takes: entropy of the positions, of the symbols, and the bits kept apart."""
    share = len(symbols) / num_elements
    of_positions = num_elements * _entropy(np.array([share, 1 - share]))
    of_moves = len(symbols) * _entropy(np.bincount(symbols) / len(symbols))
    return (of_positions + of_moves + float(np.log2(large.astype(np.float64)).sum())) / 8


def _entropy(shares: NDArray[np.float64]) -> float:
    """Bits."""
    positive = shares[shares > 0]
    return float(-(positive * np.log2(positive)).sum())


def _joined(parts: list[NDArray[Item]], dtype: type[Item]) -> NDArray[Item]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)
