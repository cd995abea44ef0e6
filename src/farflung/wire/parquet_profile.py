"""The narrow profile of Parquet that a rollout file keeps to, checked before any Parquet library sees the bytes.

    "PAR1" | column chunk 0 | column chunk 1 | ... | footer | footer length (4 bytes, little-endian) | "PAR1"
    column chunk = (page header | zstd page)*

One row group; the schema's columns in order, end to end without gaps; required values only; plain encoding, so that
each value takes its bytes in the uncompressed page and nothing (dictionary, run, delta) stands for more than it holds;
no statistics to lie in, no index, encryption, foreign file or embedded Arrow schema (where extension types would come
from). Footer and page headers are both read, because the footer can lie about the pages, and what a reader allocates
follows from the page headers (apache/arrow#49955: 300 bytes, 4 GB).

Field numbers are those of apache/parquet-format, parquet.thrift. This module does not know what a rollout is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from farflung.errors import PeerFault
from farflung.wire.thrift import ThriftStruct, read_struct
from farflung.wire.verdict import RejectReason

MAGIC = b"PAR1"
TAIL_BYTES = 8
MAX_FOOTER_BYTES = 64 << 10
MAX_PAGES_PER_COLUMN = 4096
MIN_VALUE_BYTES = 4
"""The smallest value in plain encoding: an int32, a float, or the length in front of a binary."""
LEVEL_BYTES = 4
"""Most that the repetition and definition level of one value take, each a run of its own."""
PAGE_SLACK_BYTES = 64
"""Lengths in front of the levels, and padding of their last group."""

# Enumerators of parquet.thrift.
_REQUIRED, _REPEATED = 0, 2
_UTF8, _LIST = 0, 3
_LOGICAL_STRING, _LOGICAL_LIST = 1, 3
_PLAIN, _RLE = 0, 3
_ZSTD = 6
_DATA_PAGE = 0

# Fields of parquet.thrift that would let bytes come from, or mean, something else than the pages say.
_REFUSED_IN_CHUNK = {1, 4, 5, 6, 7, 8, 9}
"""file_path, offset and column index, encryption."""
_REFUSED_IN_COLUMN = {10, 11, 12, 14, 15}
"""index page, dictionary page, statistics, bloom filter."""
_REFUSED_IN_PAGE = {6, 7, 8}
"""index page, dictionary page, data page v2."""

SchemaElement: TypeAlias = tuple[bytes, int | None, int | None, int, int | None, tuple[int, ...] | None]
"""Name, physical type, repetition, number of children, converted type, logical type."""


class Physical(IntEnum):
    INT32 = 1
    INT64 = 2
    FLOAT = 4
    BYTE_ARRAY = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of the schema with the bounds that hold for it."""

    name: str
    physical: Physical
    is_list: bool = False
    is_text: bool = False
    max_values_per_row: int = 1
    max_value_bytes: int

    @property
    def path(self) -> list[bytes]:
        name = self.name.encode()
        return [name, b"list", b"element"] if self.is_list else [name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What the footer promises, after every promise was compared with the pages."""

    num_rows: int
    num_values: tuple[int, ...]
    """Per column."""
    metadata: tuple[tuple[bytes, bytes], ...]
    """Keys and values, in order."""


def check_layout(data: bytes, columns: Sequence[Column], *, max_rows: int, max_uncompressed_bytes: int) -> Layout:
    """Check a file against the profile and the limits, in time linear in its footer and number of pages.

    Raises:
        PeerFault: `SCHEMA` when it is another table, `FOOTER_LIMITS` when it is too large, `MALFORMED_RECORD` when it
            contradicts itself or leaves the profile.
    """
    footer, footer_start = _read_footer(data)
    _check_schema(footer.structs(2), columns)
    num_rows = footer.i64(3)
    groups = footer.structs(4)
    if not 1 <= num_rows <= max_rows or len(groups) != 1:
        raise PeerFault(
            RejectReason.FOOTER_LIMITS, f"{num_rows} rows in {len(groups)} row groups: 1 to {max_rows} in 1"
        )
    chunks = groups[0].structs(1)
    if groups[0].i64(3) != num_rows or len(chunks) != len(columns):
        raise _malformed(
            f"a row group of {groups[0].i64(3)} rows and {len(chunks)} columns in a file of {num_rows} rows"
        )
    walk = _Walk(data, footer_start, num_rows, max_uncompressed_bytes)
    num_values = tuple(walk.column(chunk, column) for chunk, column in zip(chunks, columns, strict=True))
    if walk.offset != footer_start:
        raise _malformed(f"{footer_start - walk.offset} bytes between the last column and the footer")
    return Layout(num_rows=num_rows, num_values=num_values, metadata=_metadata(footer))


def _read_footer(data: bytes) -> tuple[ThriftStruct, int]:
    if len(data) < len(MAGIC) + TAIL_BYTES or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise _malformed(f"{len(data)} bytes that are not Parquet")
    footer_bytes = int.from_bytes(data[-TAIL_BYTES:-4], "little")
    end = len(data) - TAIL_BYTES
    if footer_bytes > min(MAX_FOOTER_BYTES, end - len(MAGIC)):
        raise PeerFault(RejectReason.FOOTER_LIMITS, f"a footer of {footer_bytes} bytes in a file of {len(data)}")
    footer, behind = read_struct(data, end - footer_bytes, end)
    if behind != end:
        raise _malformed(f"{end - behind} bytes behind the footer's end")
    if 8 in footer.fields or 9 in footer.fields:
        raise _malformed("an encrypted file")
    return footer, end - footer_bytes


def _metadata(footer: ThriftStruct) -> tuple[tuple[bytes, bytes], ...]:
    if 5 not in footer.fields:
        return ()
    return tuple((entry.binary(1), entry.binary(2)) for entry in footer.structs(5))


def _check_schema(found: Sequence[ThriftStruct], columns: Sequence[Column]) -> None:
    root = (b"schema", None, _REQUIRED, len(columns), None, None)
    expected = [root, *(element for column in columns for element in _elements(column))]
    seen = [_describe(element) for element in found]
    if seen != expected:
        differing = [pair for pair in zip(seen, expected, strict=False) if pair[0] != pair[1]]
        detail = f"{differing[0][0]} stands for {differing[0][1]}" if differing else f"{len(seen)} elements"
        raise PeerFault(RejectReason.SCHEMA, f"other columns than the {len(columns)} of the schema: {detail}")


def _elements(column: Column) -> list[SchemaElement]:
    name, physical = column.name.encode(), int(column.physical)
    if column.is_list:
        return [
            (name, None, _REQUIRED, 1, _LIST, (_LOGICAL_LIST,)),
            (b"list", None, _REPEATED, 1, None, None),
            (b"element", physical, _REQUIRED, 0, None, None),
        ]
    if column.is_text:
        return [(name, physical, _REQUIRED, 0, _UTF8, (_LOGICAL_STRING,))]
    return [(name, physical, _REQUIRED, 0, None, None)]


def _describe(element: ThriftStruct) -> SchemaElement:
    has = element.fields.keys()
    return (
        element.binary(4),
        element.i32(1) if 1 in has else None,
        element.i32(3) if 3 in has else None,
        element.i32(5) if 5 in has else 0,
        element.i32(6) if 6 in has else None,
        tuple(element.struct(10).fields) if 10 in has else None,
    )


class _Walk:
    """Goes over the column chunks of the row group, page by page, and adds up what they take."""

    def __init__(self, data: bytes, end: int, num_rows: int, max_uncompressed_bytes: int) -> None:
        self.offset = len(MAGIC)
        self._data = data
        self._end = end
        self._num_rows = num_rows
        self._budget_bytes = max_uncompressed_bytes

    def column(self, chunk: ThriftStruct, column: Column) -> int:
        """Check one chunk against its column; the number of its values."""
        footer = chunk.struct(3)
        if (footer.i32(1), footer.binaries(3), footer.i32(4)) != (column.physical, column.path, _ZSTD):
            raise PeerFault(RejectReason.SCHEMA, f"{column.name}: another type, path or compression in the row group")
        if _REFUSED_IN_CHUNK & chunk.fields.keys() or _REFUSED_IN_COLUMN & footer.fields.keys():
            raise _malformed(f"{column.name}: a foreign file, an encryption, a dictionary, an index or a statistic")
        num_values, num_bytes = footer.i64(5), footer.i64(7)
        if not self._num_rows <= num_values <= self._num_rows * column.max_values_per_row:
            raise PeerFault(RejectReason.FOOTER_LIMITS, f"{column.name}: {num_values} values in {self._num_rows} rows")
        if footer.i64(9) != self.offset or not 0 < num_bytes <= self._end - self.offset:
            raise _malformed(f"{column.name}: {num_bytes} bytes at {footer.i64(9)}, expected at {self.offset}")
        found = self._pages(column, self.offset + num_bytes)
        if found != (num_values, footer.i64(6)):
            raise _malformed(
                f"{column.name}: {found} values and bytes in pages, {num_values}, {footer.i64(6)} in footer"
            )
        return num_values

    def _pages(self, column: Column, end: int) -> tuple[int, int]:
        """Values and uncompressed bytes, headers included, of the pages up to `end`."""
        num_pages = num_values = num_bytes = 0
        while self.offset < end:
            header, body = read_struct(self._data, self.offset, end)
            values, page_bytes, compressed_bytes = _page(header, column)
            self._budget_bytes -= page_bytes
            num_pages += 1
            if self._budget_bytes < 0 or num_pages > MAX_PAGES_PER_COLUMN:
                raise PeerFault(RejectReason.FOOTER_LIMITS, f"{column.name}: too many pages or bytes")
            if compressed_bytes > end - body:
                raise _malformed(f"{column.name}: a page of {compressed_bytes} bytes with {end - body} left")
            num_values += values
            num_bytes += body - self.offset + page_bytes
            self.offset = body + compressed_bytes
        return num_values, num_bytes


def _page(header: ThriftStruct, column: Column) -> tuple[int, int, int]:
    """Number of values, uncompressed and compressed bytes of a page whose header keeps to the profile."""
    data_page = header.struct(5)
    encodings = (data_page.i32(2), data_page.i32(3), data_page.i32(4))
    if header.i32(1) != _DATA_PAGE or encodings != (_PLAIN, _RLE, _RLE) or _REFUSED_IN_PAGE & header.fields.keys():
        raise _malformed(f"{column.name}: a page of type {header.i32(1)} with encodings {encodings}")
    values, page_bytes, compressed_bytes = data_page.i32(1), header.i32(2), header.i32(3)
    if values < 1 or compressed_bytes < 1 or page_bytes < values * MIN_VALUE_BYTES:
        raise _malformed(f"{column.name}: {values} values in {page_bytes} bytes, compressed to {compressed_bytes}")
    if page_bytes > values * (column.max_value_bytes + LEVEL_BYTES) + PAGE_SLACK_BYTES:
        raise PeerFault(RejectReason.FOOTER_LIMITS, f"{column.name}: {values} values in {page_bytes} bytes")
    return values, page_bytes, compressed_bytes


def _malformed(detail: str) -> PeerFault:
    return PeerFault(RejectReason.MALFORMED_RECORD, f"rollout file: {detail}")
