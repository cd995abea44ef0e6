"""The format of a patch on a weights file; what builds and applies them is in `patch_build` and `patch_apply`.

    patch   = "ffpatch1" | header length u32 | header | sections
    header  = length when decompressed u32 | zstd of msgpack: `PatchHeader`

A tensor is `same`; `sparse`: gaps between changed elements and their moves (`moves`), both entropy-coded over all
sparse tensors together; `xor`: bytes of new xor old, split by place in the element, zstd; or `whole`: as it is. Of a
gap the lowest bits are kept as they are and the rest is a symbol: gaps are near geometric, whose low bits are random.
"""

from itertools import accumulate

import msgspec
import pyarrow as pa

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD

MAGIC = b"ffpatch1"
MAX_HEADER_BYTES = 16 << 20
SAME, SPARSE, XOR, WHOLE = range(4)
SECTIONS = ("gap_table", "gap_stream", "gap_overflow", "gap_bits", "move_table", "move_stream", "move_bits", "dense")

LARGEST_SYMBOL = 255
"""Stands for a quotient of a gap that is kept apart, in `OVERFLOW_BITS`."""
OVERFLOW_BITS = 48


class PatchHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    base_sha256: str
    result_sha256: str
    num_bytes: int
    """Of base and result."""
    modes: bytes
    num_changed: list[int]
    gap_bits: bytes
    section_bytes: list[int]
    dense_bytes: list[int]
    """Of each `xor` and `whole` tensor."""


def to_bytes(header: PatchHeader, sections: tuple[bytes, ...]) -> bytes:
    """The whole patch."""
    plain = msgspec.msgpack.encode(header)
    head = len(plain).to_bytes(4, "little") + zstd(plain)
    return b"".join((MAGIC, len(head).to_bytes(4, "little"), head, *sections))


def read_patch(patch: bytes) -> tuple[PatchHeader, dict[str, bytes]]:
    """Header and sections by name.

    Raises:
        PeerFault: not a patch.
    """
    view = memoryview(patch)
    start = len(MAGIC) + 4
    num_head_bytes = int.from_bytes(view[len(MAGIC) : start], "little")
    if view[: len(MAGIC)] != MAGIC or not 4 < num_head_bytes <= min(MAX_HEADER_BYTES, len(view) - start):
        raise broken("no header")
    head = bytes(view[start : start + num_head_bytes])
    num_plain_bytes = int.from_bytes(head[:4], "little")
    if num_plain_bytes > MAX_HEADER_BYTES:
        raise broken(f"a header of {num_plain_bytes} bytes")
    try:
        header = msgspec.msgpack.decode(unzstd(head[4:], num_plain_bytes), type=PatchHeader)
    except msgspec.DecodeError as error:
        raise broken("a header that cannot be read") from error
    return header, _cut_sections(header, view[start + num_head_bytes :])


def _cut_sections(header: PatchHeader, body: memoryview) -> dict[str, bytes]:
    if len(header.section_bytes) != len(SECTIONS) or min(header.section_bytes) < 0:
        raise broken("it has other sections")
    if sum(header.section_bytes) != len(body):
        raise broken("sections do not add up")
    ends = list(accumulate(header.section_bytes))
    starts = [0, *ends[:-1]]
    return {name: bytes(body[start:end]) for name, start, end in zip(SECTIONS, starts, ends, strict=True)}


def zstd(data: bytes) -> bytes:
    """Compressed for speed: what is worth more has been coded before."""
    compressed: bytes = pa.Codec("zstd", compression_level=1).compress(data, asbytes=True)
    return compressed


def unzstd(data: bytes, num_bytes: int) -> bytes:
    """Raises PeerFault unless `data` decompresses to exactly `num_bytes`."""
    try:
        plain: bytes = pa.Codec("zstd").decompress(data, num_bytes, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise broken("bytes that do not decompress") from error
    if len(plain) != num_bytes:
        raise broken(f"{len(plain)} bytes in place of {num_bytes}")
    return plain


def broken(problem: str) -> PeerFault:
    """What all of these modules raise."""
    return PeerFault(MALFORMED_RECORD, f"patch: {problem}")
