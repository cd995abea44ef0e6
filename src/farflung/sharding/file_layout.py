"""Where the tensors lie in a safetensors file: its header, read under limits and without a tensor library.

file = header length u64 | header JSON | data        tensors one after the other in the data, without holes
"""

import json
import math
from dataclasses import dataclass
from typing import TypeGuard

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD

MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 100_000

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
    "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpan:
    """A tensor and its bytes in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    """First byte, from the start of the file."""
    end: int

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


def read_layout(data: bytes | bytearray | memoryview) -> tuple[TensorSpan, ...]:
    """Tensors in the order of their bytes.

    Raises:
        PeerFault: not a safetensors file whose tensors fill it without holes or overlaps.
    """
    view = memoryview(data)
    num_header_bytes = int.from_bytes(view[:8], "little")
    if len(view) < 8 or num_header_bytes > min(MAX_HEADER_BYTES, len(view) - 8):
        raise _broken(f"a header of {num_header_bytes} bytes in a file of {len(view)}")
    data_start = 8 + num_header_bytes
    try:
        header = json.loads(bytes(view[8:data_start]))
    except (ValueError, RecursionError) as error:
        raise _broken("the header is not JSON") from error
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise _broken("the header is no table of tensors")
    spans = sorted(
        (_span(name, entry, data_start) for name, entry in header.items() if name != "__metadata__"),
        key=lambda span: (span.start, span.end),
    )
    at = data_start
    for span in spans:
        if span.start != at:
            raise _broken(f"{span.name[:80]!r} does not follow the tensor before it")
        at = span.end
    if at != len(view):
        raise _broken(f"tensors end at byte {at} of {len(view)}")
    return tuple(spans)


def _span(name: str, entry: object, data_start: int) -> TensorSpan:
    if not isinstance(entry, dict):
        raise _broken(f"{name[:80]!r} is not described by a table")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not (_are_counts(shape) and _are_counts(offsets)) or len(offsets) != 2 or dtype not in ITEM_BYTES:
        raise _broken(f"{name[:80]!r} has no dtype, shape and offsets that can be read")
    span = TensorSpan(
        name=name, dtype=dtype, shape=tuple(shape), start=data_start + offsets[0], end=data_start + offsets[1]
    )
    if span.end - span.start != span.num_elements * span.item_bytes:
        raise _broken(f"{name[:80]!r} of shape {list(shape)[:8]} has {span.end - span.start} bytes")
    return span


def _are_counts(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 48 for value in values)


def _broken(problem: str) -> PeerFault:
    return PeerFault(MALFORMED_RECORD, f"safetensors: {problem}")
