"""The Thrift reader on hand-encoded bytes, with the examples of the specification, and on hostile ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.errors import PeerFault
from farflung.wire.thrift import MAX_DEPTH, Kind, ThriftList, ThriftStruct, read_struct


def read(text: str) -> ThriftStruct:
    data = bytes.fromhex(text)
    struct, end = read_struct(data, 0, len(data))
    assert end == len(data)
    return struct


def test_every_type_is_read_with_its_number_and_value() -> None:
    struct = read(
        "11"  # field 1: true
        "12"  # field 2: false
        "13 ff"  # field 3: byte
        "14 03"  # field 4: i16 -2
        "15 d8 04"  # field 5: i32 300
        "16 01"  # field 6: i64 -1
        "17 0000000000000840"  # field 7: double
        "18 03 616263"  # field 8: binary "abc"
        "19 25 02 04"  # field 9: list of i32 1, 2
        "1c 15 06 00"  # field 10: struct with i32 3
        "05 c801 0a"  # field 100, in long form: i32 5
        "00"
    )
    assert struct.fields == {
        1: (Kind.TRUE, True),
        2: (Kind.FALSE, False),
        3: (Kind.BYTE, b"\xff"),
        4: (Kind.I16, -2),
        5: (Kind.I32, 300),
        6: (Kind.I64, -1),
        7: (Kind.DOUBLE, b"\0\0\0\0\0\0\x08\x40"),
        8: (Kind.BINARY, b"abc"),
        9: (Kind.LIST, ThriftList(Kind.I32, [1, 2])),
        10: (Kind.STRUCT, ThriftStruct({1: (Kind.I32, 3)})),
        100: (Kind.I32, 5),
    }
    assert (struct.i32(5), struct.i64(6), struct.binary(8), struct.struct(10).i32(1)) == (300, -1, b"abc", 3)


def test_long_lists_and_lists_of_structs_binaries_and_booleans_are_read() -> None:
    struct = read("19 f8 10" + "0141" * 16 + "19 2c 150200 00" + "19 22 01 02" + "00")
    assert struct.binaries(1) == [b"A"] * 16
    assert struct.structs(2) == [ThriftStruct({1: (Kind.I32, 1)}), ThriftStruct({})]
    assert struct.fields[3] == (Kind.LIST, ThriftList(Kind.BYTE, [b"\1", b"\2"]))


def test_an_empty_list_has_any_type() -> None:
    struct = read("19 05 00")
    assert struct.structs(1) == []
    assert struct.binaries(1) == []


@pytest.mark.parametrize("integer", [0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_integers_keep_their_value_up_to_the_ends_of_their_range(integer: int) -> None:
    kind, bits = (Kind.I32, 32) if -(2**31) <= integer < 2**31 else (Kind.I64, 64)
    zigzag = (integer << 1) ^ (integer >> (bits - 1))
    encoded = bytearray([0x10 | kind])
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded += bytes([zigzag, 0])
    assert read(encoded.hex()).fields == {1: (kind, integer)}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "ends too early"),
        ("15", "ends too early"),
        ("15 02", "ends too early"),
        ("18 05 41 00", "5 bytes wanted, 2 there"),
        ("17 00 00", "8 bytes wanted"),
        ("19 f5 ffffffff0f 00", "a list of 4294967295 elements"),
        ("15 8080808010 00", "more than 32 bits"),
        ("15 808080808000 00", "more than 32 bits"),
        ("16 80808080808080808002 00", "more than 64 bits"),
        ("14 808004 00", "more than 16 bits"),
        ("15 02 05 02 02 00", "field 1 after field 1"),
        ("25 02 05 02 02 00", "field 1 after field 2"),
        ("05 00 02 00", "field 0 after field 0"),
        ("1b 00 00", "type 11"),
        ("1d 00", "type 13"),
        ("19 10 00", "type 0"),
        ("1c" * (MAX_DEPTH + 1) + "00" * (MAX_DEPTH + 2), "nested deeper"),
        ("19" + "19" * (MAX_DEPTH + 1) + "00", "nested deeper"),
    ],
)
def test_malformed_bytes_are_the_peers_fault(text: str, detail: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(PeerFault, match=f"malformed_record: Thrift: .*{detail}"):
        read_struct(data, 0, len(data))


def test_nothing_behind_the_given_end_is_read() -> None:
    data = bytes.fromhex("15 02 00")
    assert read_struct(data, 0, 3)[1] == 3
    with pytest.raises(PeerFault):
        read_struct(data, 0, 2)


def test_a_field_of_another_type_or_none_is_not_taken_for_the_one_wanted() -> None:
    struct = read("16 02 15 02 19 15 02 00")
    calls = [lambda: struct.i32(1), lambda: struct.i64(2), lambda: struct.structs(3), lambda: struct.i32(9)]
    for call in [*calls, lambda: struct.binary(1), lambda: struct.struct(1), lambda: struct.binaries(1)]:
        with pytest.raises(PeerFault, match="field"):
            call()


@given(st.binary(max_size=300))
def test_random_bytes_give_a_struct_or_the_peers_fault(data: bytes) -> None:
    try:
        _, end = read_struct(data, 0, len(data))
    except PeerFault:
        return
    assert 0 < end <= len(data)
