"""Unsigned integers in a given number of bits each, end to end, the highest bit first."""

import numpy as np
from numpy.typing import NDArray

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD

_BLOCK = 1 << 16
"""Values at a time (a multiple of 8, so that blocks end on bytes); each takes 64 bytes while it is packed."""


def packed(values: NDArray[np.uint64], num_bits: int) -> bytes:
    """Each value in its lowest `num_bits` (0 to 64)."""
    if num_bits == 0:
        return b""
    blocks = (values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK))
    return b"".join(np.packbits(_bits(block)[:, 64 - num_bits :]).tobytes() for block in blocks)


def num_packed_bytes(num_values: int, num_bits: int) -> int:
    return (num_values * num_bits + 7) // 8


def unpacked(data: bytes, num_values: int, num_bits: int) -> NDArray[np.uint64]:
    """The values again.

    Raises:
        PeerFault: another number of bytes than that many values take.
    """
    if len(data) != num_packed_bytes(num_values, num_bits):
        raise PeerFault(MALFORMED_RECORD, f"patch: {len(data)} bytes for {num_values} values of {num_bits} bits")
    values = np.zeros(num_values, np.uint64)
    if num_bits == 0:
        return values
    raw = np.frombuffer(data, np.uint8)
    for start in range(0, num_values, _BLOCK):
        count = min(_BLOCK, num_values - start)
        first = start * num_bits // 8
        bits = np.unpackbits(raw[first : first + num_packed_bytes(count, num_bits)], count=count * num_bits)
        wide = np.zeros((count, 64), np.uint8)
        wide[:, 64 - num_bits :] = bits.reshape(count, num_bits)
        values[start : start + count] = np.packbits(wide, axis=1).view(">u8").reshape(-1)
    return values


def _bits(values: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.unpackbits(values.astype(">u8").view(np.uint8)).reshape(len(values), 64)
