"""Reading Thrift's compact protocol: the encoding of Parquet's footer and page headers.

    struct = (field header, value)* stop       header = delta of the field number (4 bits) | type (4 bits)
    integer = zigzag varint      binary = varint length | bytes      list = size and element type | elements

(apache/thrift, doc/specs/thrift-compact-protocol.md). Every element takes at least one byte, so n bytes take at most n
steps and make at most n objects. Integers out of the range of their type, repeated or unordered fields, and types that
Parquet does not use are refused, so that no other reader understands the same bytes differently. This module does not
know Parquet.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD

MAX_DEPTH = 12
"""Nesting of structs and lists; Parquet's own is 7."""


class Kind(IntEnum):
    """Types on the wire; a boolean field is its own value."""

    STOP = 0
    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    STRUCT = 12


_KIND_OF = {kind.value: kind for kind in Kind if kind is not Kind.STOP}
_VARINT_BITS = {Kind.I16: 16, Kind.I32: 32, Kind.I64: 64}


@dataclass(frozen=True, slots=True)
class ThriftList:
    kind: Kind
    items: "list[Value]"


@dataclass(frozen=True, slots=True)
class ThriftStruct:
    """Fields by number, each with its type. Accessors raise `PeerFault` for an absent field or another type."""

    fields: "dict[int, tuple[Kind, Value]]"

    def i32(self, number: int) -> int:
        value = self._get(number, Kind.I32)
        assert isinstance(value, int)
        return value

    def i64(self, number: int) -> int:
        value = self._get(number, Kind.I64)
        assert isinstance(value, int)
        return value

    def binary(self, number: int) -> bytes:
        value = self._get(number, Kind.BINARY)
        assert isinstance(value, bytes)
        return value

    def struct(self, number: int) -> "ThriftStruct":
        value = self._get(number, Kind.STRUCT)
        assert isinstance(value, ThriftStruct)
        return value

    def structs(self, number: int) -> "list[ThriftStruct]":
        return [item for item in self._list(number, Kind.STRUCT) if isinstance(item, ThriftStruct)]

    def binaries(self, number: int) -> list[bytes]:
        return [item for item in self._list(number, Kind.BINARY) if isinstance(item, bytes)]

    def _list(self, number: int, kind: Kind) -> "list[Value]":
        value = self._get(number, Kind.LIST)
        assert isinstance(value, ThriftList)
        if value.items and value.kind is not kind:
            raise _malformed(f"field {number} is a list of {value.kind.name}, not {kind.name}")
        return value.items

    def _get(self, number: int, kind: Kind) -> "Value":
        found, value = self.fields.get(number, (Kind.STOP, None))
        if found is not kind or value is None:
            raise _malformed(f"field {number} is {found.name}, not {kind.name}")
        return value


Value: TypeAlias = bool | int | bytes | ThriftList | ThriftStruct


def read_struct(data: bytes, start: int, end: int) -> tuple[ThriftStruct, int]:
    """The struct at `start` and the offset behind it.

    Raises:
        PeerFault: it is malformed or goes beyond `end`.
    """
    reader = _Reader(data, start, end)
    return reader.struct(0), reader.offset


class _Reader:
    def __init__(self, data: bytes, offset: int, end: int) -> None:
        self.offset = offset
        self._data = data
        self._end = min(end, len(data))

    def struct(self, depth: int) -> ThriftStruct:
        fields: dict[int, tuple[Kind, Value]] = {}
        number = 0
        while (header := self._byte()) != Kind.STOP:
            kind, delta = _kind(header & 0x0F), header >> 4
            following = number + delta if delta else self._integer(16)
            if following <= number:
                raise _malformed(f"field {following} after field {number}")
            number = following
            fields[number] = (kind, self._value(kind, depth + 1))
        return ThriftStruct(fields)

    def _value(self, kind: Kind, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise _malformed(f"nested deeper than {MAX_DEPTH}")
        if bits := _VARINT_BITS.get(kind):
            return self._integer(bits)
        if kind is Kind.BINARY:
            return self._take(self._varint(32))
        if kind is Kind.STRUCT:
            return self.struct(depth)
        if kind in (Kind.LIST, Kind.SET):
            return self._list(depth)
        if kind in (Kind.TRUE, Kind.FALSE):
            return kind is Kind.TRUE
        return self._take(8 if kind is Kind.DOUBLE else 1)

    def _list(self, depth: int) -> ThriftList:
        header = self._byte()
        kind, size = _kind(header & 0x0F), header >> 4
        if size == 15:
            size = self._varint(32)
        if size > self._end - self.offset:
            raise _malformed(f"a list of {size} elements in {self._end - self.offset} bytes")
        if kind in (Kind.TRUE, Kind.FALSE):
            kind = Kind.BYTE  # inside a list a boolean takes a byte of its own
        return ThriftList(kind, [self._value(kind, depth + 1) for _ in range(size)])

    def _integer(self, bits: int) -> int:
        raw = self._varint(bits)
        return (raw >> 1) ^ -(raw & 1)

    def _varint(self, bits: int) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift >= bits:
                raise _malformed(f"an integer of more than {bits} bits")
        value |= byte << shift
        if value >> bits:
            raise _malformed(f"an integer of more than {bits} bits")
        return value

    def _byte(self) -> int:
        if self.offset >= self._end:
            raise _malformed("ends too early")
        self.offset += 1
        return self._data[self.offset - 1]

    def _take(self, num_bytes: int) -> bytes:
        if num_bytes > self._end - self.offset:
            raise _malformed(f"{num_bytes} bytes wanted, {self._end - self.offset} there")
        self.offset += num_bytes
        return self._data[self.offset - num_bytes : self.offset]


def _kind(number: int) -> Kind:
    kind = _KIND_OF.get(number)
    if kind is None:
        raise _malformed(f"type {number}")
    return kind


def _malformed(detail: str) -> PeerFault:
    return PeerFault(MALFORMED_RECORD, f"Thrift: {detail}")
