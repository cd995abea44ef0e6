"""From one bit pattern of a number to another, as how far it moved in the order of numbers.

Floats as integers in their own order (sign-magnitude to two's complement; -0 just below +0, NaNs beyond the
infinities): a weight that an optimizer step changed has mostly moved by 1 or -1. A bijection on bits, so that NaN
payloads and signed zeros survive. A move becomes

    symbol = 2 * (|move| - 1) + sign                            for |move| <= 16
           = 32 + 2 * (c - 4) + sign,  c = floor(log2 |move|)    beyond, with the c lowest bits of |move| kept apart
"""

import numpy as np
from numpy.typing import NDArray

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD

Bits = NDArray[np.unsignedinteger]
"""Bit patterns: uint8, uint16 or uint32."""
Moves = NDArray[np.int64]

NUM_DIRECT = 16
"""Moves up to here have symbols of their own."""
_DIRECT_BITS = 4
MAX_CLASS = 32
"""c of the largest move in 32 bits."""


def moves_between(old: Bits, new: Bits) -> Moves:
    """How far each element moved; 0 where the bits are the same."""
    return _ordered(new) - _ordered(old)


def moved(old: Bits, moves: Moves) -> Bits:
    """The bits after the moves.

    Raises:
        PeerFault: a move leads out of the type.
    """
    half = 1 << (8 * old.dtype.itemsize - 1)
    places = _ordered(old) + moves
    if len(places) and (int(places.min()) < -half or int(places.max()) >= half):
        raise PeerFault(MALFORMED_RECORD, "patch: a move leads out of the numbers of its type")
    return np.where(places >= 0, places, half + (-1 - places)).astype(old.dtype)


def to_symbols(moves: Moves) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """(symbol of each move, none of them 0; sizes |move| of those that have no symbol of their own, in order)."""
    sizes, signs = np.abs(moves), (moves < 0).astype(np.int64)
    symbols = 2 * (sizes - 1) + signs
    is_large = sizes > NUM_DIRECT
    classes = _num_bits(sizes[is_large]) - 1
    symbols[is_large] = 2 * NUM_DIRECT + 2 * (classes - _DIRECT_BITS) + signs[is_large]
    return symbols.astype(np.uint8), sizes[is_large].astype(np.uint64)


def large_classes(symbols: NDArray[np.uint8]) -> NDArray[np.int64]:
    """For each symbol that stands for large moves, in order: how many low bits of |move| are kept apart.

    Raises:
        PeerFault: a symbol that `to_symbols` never makes.
    """
    large = symbols[symbols >= 2 * NUM_DIRECT].astype(np.int64)
    classes = (large - 2 * NUM_DIRECT) // 2 + _DIRECT_BITS
    if len(classes) and int(classes.max()) > MAX_CLASS:
        raise PeerFault(MALFORMED_RECORD, "patch: a symbol stands for no move")
    return classes


def from_symbols(symbols: NDArray[np.uint8], large_sizes: NDArray[np.uint64]) -> Moves:
    """The moves again; `large_sizes` in the order of the symbols that have them."""
    values = symbols.astype(np.int64)
    sizes = values // 2 + 1
    sizes[values >= 2 * NUM_DIRECT] = large_sizes.astype(np.int64)
    return np.where(values % 2 == 1, -sizes, sizes)


def _ordered(bits: Bits) -> NDArray[np.int64]:
    half = 1 << (8 * bits.dtype.itemsize - 1)
    wide = bits.astype(np.int64)
    return np.where(wide < half, wide, half - 1 - wide)


def _num_bits(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Length in bits of integers below 2^53."""
    exponents: NDArray[np.int64] = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    return exponents
