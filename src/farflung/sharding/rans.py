"""An entropy coder for long streams of small symbols, all lanes at once in array operations.

Static range asymmetric numeral systems (rANS, Duda 2013, arXiv 1311.2540): frequencies are rounded to a total of 2^12,
states live in [2^16, 2^32) and give or take 16 bits at a time. Lane `i` of `L` codes symbols i, i + L, i + 2L, ... so
that one array operation serves L symbols.

    stream = states u32 [L] | words u16 [...]            little-endian
    table  = symbols u8 [A] | frequencies - 1 u16 [A]

A stream costs its order-0 entropy plus about 0.1 % and 4 bytes a lane. Does not know what symbols mean.
"""

import numpy as np
from numpy.typing import NDArray

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD

Symbols = NDArray[np.uint8]

_PRECISION_BITS = 12
_TOTAL = 1 << _PRECISION_BITS
_LOWEST_STATE = 1 << 16
_SYMBOLS_PER_LANE = 2048
"""Few enough that the loop over them is short, enough that 4 bytes of state a lane do not count."""
_MAX_LANES = 1 << 16


def encode(symbols: Symbols) -> tuple[bytes, bytes]:
    """(table, stream) of `symbols`; both empty for none."""
    if len(symbols) == 0:
        return b"", b""
    frequencies = _rounded(np.bincount(symbols, minlength=256))
    used = np.flatnonzero(frequencies)
    table = used.astype("u1").tobytes() + (frequencies[used] - 1).astype("<u2").tobytes()
    if len(used) == 1:
        return table, b""
    starts = (np.cumsum(frequencies) - frequencies).astype(np.uint64)
    return table, _encode(symbols, frequencies.astype(np.uint64), starts)


def decode(table: bytes, stream: bytes, num_symbols: int) -> Symbols:
    """The symbols again.

    Raises:
        PeerFault: table or stream is not what `encode` makes for that many symbols.
    """
    if num_symbols == 0:
        _require(not table and not stream, "a stream of no symbols is not empty")
        return np.empty(0, np.uint8)
    frequencies = _read_table(table)
    used = np.flatnonzero(frequencies)
    if len(used) == 1:
        _require(not stream, "a stream of one symbol is not empty")
        return np.full(num_symbols, used[0], np.uint8)
    return _decode(stream, frequencies, num_symbols)


def num_lanes(num_symbols: int) -> int:
    return max(1, min(_MAX_LANES, num_symbols // _SYMBOLS_PER_LANE))


def _encode(symbols: Symbols, frequencies: NDArray[np.uint64], starts: NDArray[np.uint64]) -> bytes:
    lanes = num_lanes(len(symbols))
    states = np.full(lanes, _LOWEST_STATE, np.uint64)
    words: list[NDArray[np.uint16]] = []
    for start in range((len(symbols) - 1) // lanes * lanes, -1, -lanes):  # the last symbols first
        row = symbols[start : start + lanes]
        state = states[: len(row)]
        frequency = frequencies[row]
        is_full = state >= frequency << np.uint64(32 - _PRECISION_BITS)
        words.append(state[is_full].astype(np.uint16))
        state = np.where(is_full, state >> np.uint64(16), state)
        quotient, remainder = np.divmod(state, frequency)
        states[: len(row)] = (quotient << np.uint64(_PRECISION_BITS)) + remainder + starts[row]
    return states.astype("<u4").tobytes() + np.concatenate(words[::-1]).astype("<u2").tobytes()


def _decode(stream: bytes, frequencies: NDArray[np.int64], num_symbols: int) -> Symbols:
    lanes = num_lanes(num_symbols)
    _require(len(stream) >= 4 * lanes and len(stream) % 2 == 0, "a stream is too short for its states")
    states = np.frombuffer(stream, "<u4", lanes).astype(np.uint64)
    words = np.frombuffer(stream, "<u2", offset=4 * lanes).astype(np.uint64)
    symbol_of = np.repeat(np.arange(256, dtype=np.uint8), frequencies)
    frequency_of = frequencies.astype(np.uint64)[symbol_of]
    offset_of = np.arange(_TOTAL, dtype=np.uint64) - (np.cumsum(frequencies) - frequencies).astype(np.uint64)[symbol_of]
    symbols = np.empty(num_symbols, np.uint8)
    position = 0
    for start in range(0, num_symbols, lanes):
        state = states[: min(lanes, num_symbols - start)]
        place = (state & np.uint64(_TOTAL - 1)).astype(np.intp)
        symbols[start : start + len(state)] = symbol_of[place]
        state = frequency_of[place] * (state >> np.uint64(_PRECISION_BITS)) + offset_of[place]
        is_low = np.flatnonzero(state < _LOWEST_STATE)
        taken = words[position : position + len(is_low)]
        _require(len(taken) == len(is_low), "a stream ends too early")
        state[is_low] = state[is_low] << np.uint64(16) | taken
        states[: len(state)] = state
        position += len(is_low)
    _require(position == len(words) and bool((states == _LOWEST_STATE).all()), "a stream does not end where it should")
    return symbols


def _rounded(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Frequencies that sum to 2^12, at least 1 for every symbol that occurs."""
    frequencies = np.where(counts > 0, np.maximum(1, np.rint(counts * (_TOTAL / counts.sum()))), 0).astype(np.int64)
    while excess := int(frequencies.sum()) - _TOTAL:
        # The most frequent symbols bear the rounding best; none of them falls below half of what it had.
        largest = int(frequencies.argmax())
        frequencies[largest] -= min(excess, max(1, int(frequencies[largest]) // 2))
    return frequencies


def _read_table(table: bytes) -> NDArray[np.int64]:
    size, rest = divmod(len(table), 3)
    _require(1 <= size <= 256 and rest == 0, "a table of frequencies has a wrong length")
    used = np.frombuffer(table, "u1", size).astype(np.int64)
    _require(bool((np.diff(used) > 0).all()), "a table of frequencies is not in order")
    frequencies = np.zeros(256, np.int64)
    frequencies[used] = np.frombuffer(table, "<u2", offset=size).astype(np.int64) + 1
    _require(int(frequencies.sum()) == _TOTAL, "frequencies do not add up")
    return frequencies


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise PeerFault(MALFORMED_RECORD, f"patch: {problem}")
