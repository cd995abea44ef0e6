"""Turning one weights file into the next by a patch from anybody, in place, touching changed elements only.

Every count is bounded by the file that the caller holds before anything is decoded by it, and the result is hashed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farflung.sharding import rans
from farflung.sharding.file_layout import TensorSpan, read_layout
from farflung.sharding.moves import from_symbols, large_classes, moved
from farflung.sharding.packed_bits import num_packed_bytes, unpacked
from farflung.sharding.patch_build import SPARSE_TYPES
from farflung.sharding.patch_format import (
    LARGEST_SYMBOL,
    OVERFLOW_BITS,
    SAME,
    SPARSE,
    WHOLE,
    XOR,
    PatchHeader,
    broken,
    read_patch,
    unzstd,
)
from farflung.wire.canonical import sha256_hex


@dataclass(frozen=True, slots=True, eq=False)
class TensorChange:
    """What a patch does to one tensor."""

    span: TensorSpan
    indices: NDArray[np.int64] | None
    """Flat positions of the changed elements, ascending; None = all of them."""


def apply_patch(weights: bytearray, patch: bytes, *, base_sha256: str) -> list[TensorChange]:
    """Turn the base file into the result, in place, touching changed elements only.

    Args:
        weights: the base file; of undefined content if this raises.
        base_sha256: of `weights`, known to the caller who checked it.

    Raises:
        PeerFault: the patch is of another base, malformed, or does not give the file that it promises.
    """
    header, section = read_patch(patch)
    if header.base_sha256 != base_sha256 or header.num_bytes != len(weights):
        raise broken(f"it is for the base {header.base_sha256}, not for {base_sha256}")
    spans = read_layout(weights)
    changes = list(_Reader(header, section, spans).apply(weights))
    if sha256_hex(memoryview(weights)) != header.result_sha256:
        raise broken("the result is not the file that it promises")
    return changes


class _Reader:
    """One patch, taken apart against the layout of its base."""

    def __init__(self, header: PatchHeader, section: dict[str, bytes], spans: tuple[TensorSpan, ...]) -> None:
        _check_tensors(header, spans)
        self._header = header
        self._spans = spans
        self._section = section
        num_changed = sum(n for n, mode in zip(header.num_changed, header.modes, strict=True) if mode == SPARSE)
        self._quotients = self._decode_quotients(num_changed)
        symbols = rans.decode(self._section["move_table"], self._section["move_stream"], num_changed)
        self._moves = from_symbols(symbols, _unpack_large(large_classes(symbols), self._section["move_bits"]))

    def _decode_quotients(self, num_changed: int) -> NDArray[np.uint64]:
        symbols = rans.decode(self._section["gap_table"], self._section["gap_stream"], num_changed)
        quotients = symbols.astype(np.uint64)
        is_over = symbols == LARGEST_SYMBOL
        quotients[is_over] = unpacked(self._section["gap_overflow"], int(is_over.sum()), OVERFLOW_BITS)
        return quotients

    def apply(self, weights: bytearray) -> Iterator[TensorChange]:
        """Change `weights` tensor by tensor."""
        sparse_at = bits_at = dense_at = 0
        dense_bytes = iter(self._header.dense_bytes)
        for index, span in enumerate(self._spans):
            mode, count = self._header.modes[index], self._header.num_changed[index]
            raw = np.frombuffer(weights, np.uint8, span.end - span.start, span.start)
            if mode == SPARSE:
                gap_bits = self._header.gap_bits[index]
                num_bytes = num_packed_bytes(count, gap_bits)
                remainders = unpacked(self._section["gap_bits"][bits_at : bits_at + num_bytes], count, gap_bits)
                quotients = self._quotients[sparse_at : sparse_at + count]
                indices = _indices(quotients, remainders, gap_bits, span)
                elements = raw.view(SPARSE_TYPES[span.item_bytes])
                elements[indices] = moved(elements[indices], self._moves[sparse_at : sparse_at + count])
                sparse_at, bits_at = sparse_at + count, bits_at + num_bytes
                yield TensorChange(span, indices)
            elif mode != SAME:
                num_bytes = next(dense_bytes)
                _apply_dense(raw, self._section["dense"][dense_at : dense_at + num_bytes], mode, span.item_bytes)
                dense_at += num_bytes
                yield TensorChange(span, None)
        if bits_at != len(self._section["gap_bits"]):
            raise broken("bits of gaps are left over")


def _apply_dense(raw: NDArray[np.uint8], data: bytes, mode: int, item_bytes: int) -> None:
    plain = data if mode == WHOLE else unzstd(data, len(raw))
    if len(plain) != len(raw):
        raise broken("a whole tensor has another size")
    new = np.frombuffer(plain, np.uint8)
    if mode == WHOLE:
        raw[:] = new
    else:
        raw ^= new.reshape(item_bytes, -1).T.reshape(-1)


def _indices(
    quotients: NDArray[np.uint64], remainders: NDArray[np.uint64], gap_bits: int, span: TensorSpan
) -> NDArray[np.int64]:
    """Positions from gaps; each gap is bounded first, so that their sum cannot wrap."""
    if int(quotients.max()) << gap_bits >= span.num_elements:
        raise broken(f"a gap in {span.name[:80]!r} is larger than the tensor")
    gaps = (quotients << np.uint64(gap_bits) | remainders).astype(np.int64)
    indices = np.cumsum(gaps + 1) - 1
    if int(indices[-1]) >= span.num_elements:
        raise broken(f"an element of {span.name[:80]!r} is out of range")
    return indices


def _check_tensors(header: PatchHeader, spans: tuple[TensorSpan, ...]) -> None:
    """Every count is bounded by the file that the reader holds, before anything is decoded by it."""
    lengths = {len(header.modes), len(header.num_changed), len(header.gap_bits), len(spans)}
    if lengths != {len(spans)}:
        raise broken("it describes another number of tensors")
    for span, mode, count, bits in zip(spans, header.modes, header.num_changed, header.gap_bits, strict=True):
        is_sound = {
            SAME: count == 0,
            SPARSE: 1 <= count <= span.num_elements and bits <= 40 and span.item_bytes in SPARSE_TYPES,
        }.get(mode, mode <= WHOLE and count == span.num_elements)
        if not is_sound:
            raise broken(f"{span.name[:80]!r} is changed in a way that there is not")
    num_dense = sum(mode in (XOR, WHOLE) for mode in header.modes)
    if len(header.dense_bytes) != num_dense or sum(header.dense_bytes) != header.section_bytes[-1]:
        raise broken("dense tensors do not add up")
    if min(header.dense_bytes, default=0) < 0:
        raise broken("a length is negative")


def _unpack_large(classes: NDArray[np.int64], data: bytes) -> NDArray[np.uint64]:
    sizes = np.zeros(len(classes), np.uint64)
    at = 0
    for kind in np.unique(classes):
        members = classes == kind
        count = int(members.sum())
        num_bytes = num_packed_bytes(count, int(kind))
        sizes[members] = unpacked(data[at : at + num_bytes], count, int(kind)) | np.uint64(1 << int(kind))
        at += num_bytes
    if at != len(data):
        raise broken("bits of moves are left over")
    return sizes
