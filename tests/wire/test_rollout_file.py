"""Honest rollout files come back whole; every `mallory_*` is refused with its reason, most of them undecoded."""

import random
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.errors import OurFault, PeerFault
from farflung.wire.canonical import sha256_hex
from farflung.wire.parquet_profile import MAGIC
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.rollout_file import read_rollouts, write_rollouts
from farflung.wire.rollout_schema import ARROW_SCHEMA, POOL_KEY, SCHEMA_VERSION, VERSION_KEY
from farflung.wire.thrift import Kind, ThriftList, ThriftStruct, Value, read_struct

POOL = sha256_hex(b"pool")
METADATA = {VERSION_KEY: SCHEMA_VERSION, POOL_KEY: POOL.encode()}


def rollout(group: int = 0, sample: int = 0, num_tokens: int = 5, **changes: Any) -> Rollout:
    rng = np.random.default_rng((group, sample))
    values: dict[str, Any] = {
        "env": "sort-digits",
        "task_id": f"train/{group}",
        "group": group,
        "sample": sample,
        "prompt_tokens": rng.integers(0, 32, 4 + group, dtype=np.int32),
        "completion_tokens": rng.integers(0, 32, num_tokens, dtype=np.int32),
        "logprobs": -rng.random(num_tokens, dtype=np.float32),
        "stop_reason": StopReason.EOS,
        "policy_version": 7,
        "target_length": 16,
        "claimed_reward": 0.5,
        "proof": b"\0\x7f",
    }
    return Rollout(**{**values, **changes})


HONEST = [rollout(group, sample) for group in range(3) for sample in range(4)]


def read(data: bytes, **limits: int) -> list[Rollout]:
    return read_rollouts(data, pool_digest=POOL, **limits)


def refused(data: bytes, reason: str, **limits: int) -> str:
    with pytest.raises(PeerFault) as caught:
        read(data, **limits)
    assert caught.value.reason == reason, caught.value
    return caught.value.detail


@pytest.fixture
def undecoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails the test when the bytes reach the Parquet library."""

    def never(*args: object, **options: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(pq, "ParquetFile", never)
    return


def assert_equal(seen: list[Rollout], expected: list[Rollout]) -> None:
    assert len(seen) == len(expected)
    for one, other in zip(seen, expected, strict=True):
        for field in fields(Rollout):
            left, right = getattr(one, field.name), getattr(other, field.name)
            assert type(left) is type(right), field.name
            if isinstance(left, np.ndarray):
                assert left.dtype == right.dtype
            assert np.array_equal(left, right), field.name


# Honest files


def test_rollouts_come_back_as_they_were_written() -> None:
    assert_equal(read(write_rollouts(HONEST, POOL)), HONEST)


def test_writing_twice_gives_the_same_bytes() -> None:
    assert write_rollouts(HONEST, POOL) == write_rollouts(HONEST, POOL)


def test_several_pages_a_column_come_back_whole() -> None:
    """Random tokens fill pages of a mebibyte; rows end anywhere in them."""
    long = [rollout(0, sample, num_tokens=200_000 + sample) for sample in range(3)]
    assert_equal(read(write_rollouts(long, POOL)), long)


def test_arrays_are_writable_since_torch_warns_of_others() -> None:
    assert read(write_rollouts(HONEST, POOL))[0].completion_tokens.flags.writeable


def test_a_file_at_each_limit_is_read() -> None:
    longest = rollout(num_tokens=9)
    data = write_rollouts([longest] * 3, POOL)
    assert_equal(read(data, max_rollouts=3, max_tokens_per_list=9), [longest] * 3)


def test_a_view_into_a_larger_array_is_written_as_what_it_shows() -> None:
    ids = np.arange(20, dtype=np.int32)
    view = rollout(prompt_tokens=ids[3:6], completion_tokens=ids[::4])
    assert_equal(read(write_rollouts([view], POOL)), [view])


tokens = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=6)


@given(
    st.lists(st.tuples(tokens, tokens, st.binary(max_size=5), st.text(min_size=1, max_size=8)), min_size=1, max_size=4)
)
def test_any_rollouts_survive_the_round_trip(rows: list[tuple[list[int], list[int], bytes, str]]) -> None:
    written = [
        rollout(
            prompt_tokens=np.array(prompt, np.int32),
            completion_tokens=np.array(completion, np.int32),
            logprobs=np.array(completion, np.float32),
            proof=proof,
            task_id=name,
        )
        for prompt, completion, proof, name in rows
        if name.isprintable()
    ] or [rollout()]
    assert_equal(read(write_rollouts(written, POOL)), written)


def test_the_columns_are_those_of_the_record_and_of_the_published_table() -> None:
    assert ARROW_SCHEMA.names == [field.name for field in fields(Rollout)]
    int32s, floats = (
        pa.list_(pa.field("element", pa.int32(), False)),
        pa.list_(pa.field("element", pa.float32(), False)),
    )
    types = [pa.string(), pa.string(), pa.int32(), pa.int32(), int32s, int32s, floats, pa.string(), pa.int64()]
    assert ARROW_SCHEMA.types == [*types, pa.int32(), pa.float32(), pa.binary()]
    assert not any(field.nullable for field in ARROW_SCHEMA)


@pytest.mark.parametrize(
    "rollouts",
    [
        [],
        [rollout(prompt_tokens=np.empty(0, np.int32))],
        [rollout(num_tokens=0)],
        [rollout(logprobs=np.array([0, 0, 0, 0, np.nan], np.float32))],
        [rollout(claimed_reward=float("inf"))],
    ],
)
def test_what_no_reader_would_take_is_not_written(rollouts: list[Rollout]) -> None:
    with pytest.raises(ValueError):
        write_rollouts(rollouts, POOL)


# Other tables and other writers


def columns(**changes: pa.Array) -> dict[str, pa.Array]:
    honest = pq.read_table(pa.BufferReader(write_rollouts(HONEST, POOL)))
    return {**{name: honest.column(name).combine_chunks() for name in honest.column_names}, **changes}


def written(
    table: pa.Table, metadata: dict[bytes, bytes] | None = None, row_group_size: int | None = None, **options: Any
) -> bytes:
    """A file by pyarrow with the honest settings, except for `options`."""
    honest = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **{**honest, **options}) as writer:
        writer.write_table(table, row_group_size=row_group_size)
        writer.add_key_value_metadata(METADATA if metadata is None else metadata)
    return bytes(sink.getvalue())


def honest_table(**changes: pa.Array) -> pa.Table:
    return pa.Table.from_arrays(list(columns(**changes).values()), schema=ARROW_SCHEMA)


def test_an_honest_file_by_other_means_is_read() -> None:
    assert_equal(read(written(honest_table())), HONEST)


def field(name: str, kind: pa.DataType, nullable: bool = False) -> Callable[[pa.Schema], pa.Schema]:
    return lambda schema: schema.set(schema.get_field_index(name), pa.field(name, kind, nullable))


LIST_OF_NULLABLE = pa.list_(pa.field("element", pa.int32(), True))
OTHER_SCHEMAS: dict[str, Callable[[pa.Schema], pa.Schema]] = {
    "a nullable column": field("group", pa.int32(), True),
    "a nullable list": field("prompt_tokens", ARROW_SCHEMA.field("prompt_tokens").type, True),
    "nullable elements": field("prompt_tokens", LIST_OF_NULLABLE),
    "another width": field("group", pa.int64()),
    "another sign": field("group", pa.uint32()),
    "a date": field("group", pa.date32()),
    "text as binary": field("task_id", pa.binary()),
    "binary as text": field("proof", pa.string()),
    "double logprobs": field("logprobs", pa.list_(pa.field("element", pa.float64(), False))),
    "another name": lambda schema: schema.set(0, pa.field("enw", pa.string(), False)),
    "an extra column": lambda schema: schema.append(pa.field("extra", pa.int32(), False)),
    "a duplicate column": lambda schema: schema.append(schema.field("group")),
    "a missing column": lambda schema: schema.remove(schema.get_field_index("proof")),
    "another order": lambda schema: pa.schema([schema.field(1), schema.field(0), *list(schema)[2:]]),
}


@pytest.mark.parametrize("name", OTHER_SCHEMAS)
@pytest.mark.usefixtures("undecoded")
def test_mallory_other_columns_are_refused_undecoded(name: str) -> None:
    """Among them a column that may be null (grail, complaint 39): rows without values would be counted."""
    schema = OTHER_SCHEMAS[name](ARROW_SCHEMA)
    arrays = {**columns(), "extra": columns()["group"], "enw": columns()["env"]}
    cast = [arrays[column.name].cast(column.type) for column in schema]
    refused(written(pa.Table.from_arrays(cast, schema=schema)), "schema")


@pytest.mark.usefixtures("undecoded")
def test_mallory_an_extension_type_is_refused_undecoded() -> None:
    """It would come from the Arrow schema in the metadata, where CVE-2023-47248 was."""
    table = honest_table()
    assert b"ARROW:schema" in written(table, store_schema=True)
    refused(written(table, store_schema=True), "schema")
    smuggled = METADATA | {b"ARROW:schema": b"/////w=="}
    refused(written(table, smuggled), "schema")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "schema"),
        ({POOL_KEY: POOL.encode()}, "schema"),
        ({VERSION_KEY: b"2", POOL_KEY: POOL.encode()}, "schema"),
        ({POOL_KEY: POOL.encode(), VERSION_KEY: SCHEMA_VERSION}, "schema"),
        ({VERSION_KEY: SCHEMA_VERSION, POOL_KEY: sha256_hex(b"another").encode()}, "wrong_pool"),
        ({VERSION_KEY: SCHEMA_VERSION, POOL_KEY: b"\xff" * 999}, "wrong_pool"),
    ],
)
@pytest.mark.usefixtures("undecoded")
def test_mallory_another_pool_or_schema_version_is_refused_undecoded(metadata: dict[bytes, bytes], reason: str) -> None:
    refused(written(honest_table(), metadata), reason)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"use_dictionary": True}, "malformed_record"),
        ({"write_statistics": True}, "malformed_record"),
        ({"write_page_index": True}, "malformed_record"),
        ({"data_page_version": "2.0"}, "malformed_record"),
        ({"column_encoding": "BYTE_STREAM_SPLIT"}, "malformed_record"),
        ({"compression": "snappy"}, "schema"),
        ({"compression": "none"}, "schema"),
        ({"compression": "gzip"}, "schema"),
    ],
)
@pytest.mark.usefixtures("undecoded")
def test_mallory_another_encoding_is_refused_undecoded(options: dict[str, Any], reason: str) -> None:
    if "column_encoding" in options:
        options = {"column_encoding": {"group": options["column_encoding"]}}
    refused(written(honest_table(), **options), reason)


# Bombs


@pytest.mark.usefixtures("undecoded")
def test_mallory_more_rows_than_expected_are_refused_undecoded() -> None:
    data = write_rollouts(HONEST, POOL)
    assert "12 rows" in refused(data, "footer_limits", max_rollouts=11)


@pytest.mark.usefixtures("undecoded")
def test_mallory_several_row_groups_are_refused_undecoded() -> None:
    assert "2 row groups" in refused(written(honest_table(), row_group_size=6), "footer_limits")


@pytest.mark.usefixtures("undecoded")
def test_mallory_no_rows_are_refused_undecoded() -> None:
    refused(written(honest_table().slice(0, 0)), "footer_limits")


@pytest.mark.usefixtures("undecoded")
def test_mallory_a_long_list_that_compresses_to_nothing_is_refused_undecoded() -> None:
    zeros = np.zeros(1 << 21, np.int32)
    bomb = write_rollouts([rollout(prompt_tokens=zeros)], POOL)
    assert len(bomb) < 4000
    assert "2097152 values in 1 rows" in refused(bomb, "footer_limits")
    loose = {"max_tokens_per_list": 1 << 22, "max_uncompressed_bytes": 1 << 22}
    assert "too many pages or bytes" in refused(bomb, "footer_limits", **loose)


def test_mallory_one_list_longer_than_allowed_among_short_ones_is_refused() -> None:
    """The sum of the lengths keeps to the bound."""
    data = write_rollouts([rollout(num_tokens=12), rollout(num_tokens=2)], POOL)
    assert "2 to 12" in refused(data, "footer_limits", max_tokens_per_list=10)


@pytest.mark.usefixtures("undecoded")
def test_mallory_long_equal_names_are_refused_undecoded() -> None:
    """50 names of 10 MB take 766 bytes in a file with a dictionary; here, a few with zstd."""
    names = pa.array(["x" * 100_000] * len(HONEST))
    assert len(written(honest_table(task_id=names))) < 5000
    refused(written(honest_table(task_id=names)), "footer_limits")


def test_mallory_one_long_name_among_short_ones_is_refused() -> None:
    names = pa.array(["x" * 257] + ["x"] * (len(HONEST) - 1))
    refused(written(honest_table(task_id=names)), "schema")


@pytest.mark.usefixtures("undecoded")
def test_mallory_a_footer_larger_than_allowed_is_refused_unread() -> None:
    data = written(honest_table(), METADATA | {b"padding": b"x" * (64 << 10)})
    assert "a footer of" in refused(data, "footer_limits")


def test_a_limit_on_memory_holds_for_the_sum_of_all_columns() -> None:
    data = write_rollouts([rollout(num_tokens=1000)], POOL)
    read(data, max_uncompressed_bytes=9_000)
    refused(data, "footer_limits", max_uncompressed_bytes=8_000)


# Files that contradict themselves


def encode(struct: ThriftStruct) -> bytes:
    """Thrift compact bytes of a struct: the inverse of the reader under test."""
    out = bytearray()
    for number, (kind, value) in struct.fields.items():
        out += bytes([kind]) + _varint(number << 1) + _encode_value(kind, value)
    return bytes(out + b"\0")


def _encode_value(kind: Kind, value: Value) -> bytes:
    if kind in (Kind.I16, Kind.I32, Kind.I64):
        assert isinstance(value, int)
        return _varint((value << 1) ^ (value >> 63))
    if kind is Kind.BINARY:
        assert isinstance(value, bytes)
        return _varint(len(value)) + value
    if isinstance(value, ThriftStruct):
        return encode(value)
    if isinstance(value, ThriftList):
        header = bytes([0xF0 | value.kind]) + _varint(len(value.items))
        return header + b"".join(_encode_value(value.kind, item) for item in value.items)
    return value if isinstance(value, bytes) else b""


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def footer_of(data: bytes) -> tuple[ThriftStruct, int]:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return read_struct(data, start, len(data) - 8)[0], start


def with_footer(body: bytes, footer: ThriftStruct) -> bytes:
    encoded = encode(footer)
    return body + encoded + len(encoded).to_bytes(4, "little") + MAGIC


def column_of(footer: ThriftStruct, name: str) -> ThriftStruct:
    chunk = footer.structs(4)[0].structs(1)[ARROW_SCHEMA.get_field_index(name)]
    return chunk.struct(3)


def set_field(struct: ThriftStruct, number: int, value: Value) -> None:
    struct.fields[number] = (struct.fields[number][0], value)


def add_field(struct: ThriftStruct, number: int, kind: Kind, value: Value) -> None:
    struct.fields[number] = (kind, value)
    ordered = dict(sorted(struct.fields.items()))
    struct.fields.clear()
    struct.fields.update(ordered)


def lying(change: Callable[[ThriftStruct], None]) -> bytes:
    data = write_rollouts(HONEST, POOL)
    footer, start = footer_of(data)
    change(footer)
    return with_footer(data[:start], footer)


def lying_page(name: str, change: Callable[[ThriftStruct], None], page: bytes | None = None) -> bytes:
    """The page of a column with another header (and content), and a footer that knows of the sizes, but of no count."""
    data = write_rollouts(HONEST, POOL)
    footer, footer_start = footer_of(data)
    column = column_of(footer, name)
    start, end = column.i64(9), column.i64(9) + column.i64(7)
    header, body = read_struct(data, start, end)
    old_bytes = column.i64(6) - (body - start)
    content = data[body:end] if page is None else page
    set_field(header, 3, len(content))
    change(header)
    chunk = encode(header) + content
    shift = len(chunk) - column.i64(7)
    set_field(column, 7, len(chunk))
    set_field(column, 6, column.i64(6) - old_bytes - (body - start) + header.i32(2) + len(chunk) - len(content))
    for later in footer.structs(4)[0].structs(1):
        if later.struct(3).i64(9) > start:
            set_field(later.struct(3), 9, later.struct(3).i64(9) + shift)
    return with_footer(data[:start] + chunk + data[end:footer_start], footer)


def test_the_forgers_tools_make_an_honest_file_when_nothing_is_changed() -> None:
    assert_equal(read(lying(lambda footer: None)), HONEST)
    assert_equal(read(lying_page("logprobs", lambda header: None)), HONEST)


LIES: dict[str, tuple[Callable[[ThriftStruct], None], str]] = {
    "a billion values": (lambda footer: set_field(column_of(footer, "logprobs"), 5, 10**9), "footer_limits"),
    "fewer values than rows": (lambda footer: set_field(column_of(footer, "logprobs"), 5, 11), "footer_limits"),
    "negative values": (lambda footer: set_field(column_of(footer, "logprobs"), 5, -1), "footer_limits"),
    "one value too few": (lambda footer: set_field(column_of(footer, "logprobs"), 5, 59), "malformed_record"),
    "one value too many": (lambda footer: set_field(column_of(footer, "logprobs"), 5, 61), "malformed_record"),
    "two values in a row": (lambda footer: set_field(column_of(footer, "group"), 5, 24), "footer_limits"),
    "other uncompressed size": (lambda footer: set_field(column_of(footer, "group"), 6, 94), "malformed_record"),
    "a chunk beyond the file": (lambda footer: set_field(column_of(footer, "proof"), 7, 10**6), "malformed_record"),
    "a negative chunk": (lambda footer: set_field(column_of(footer, "proof"), 7, -8), "malformed_record"),
    "a chunk elsewhere": (lambda footer: set_field(column_of(footer, "sample"), 9, 4), "malformed_record"),
    "another codec": (lambda footer: set_field(column_of(footer, "sample"), 4, 0), "schema"),
    "another type": (lambda footer: set_field(column_of(footer, "sample"), 1, 2), "schema"),
    "a dictionary": (lambda footer: add_field(column_of(footer, "env"), 11, Kind.I64, 4), "malformed_record"),
    "another number of rows": (lambda footer: set_field(footer, 3, 13), "malformed_record"),
    "a billion rows": (lambda footer: set_field(footer, 3, 10**9), "footer_limits"),
    "no rows": (lambda footer: set_field(footer, 3, 0), "footer_limits"),
    "an encrypted footer": (lambda footer: add_field(footer, 8, Kind.STRUCT, ThriftStruct({})), "malformed_record"),
    "a foreign file": (
        lambda footer: add_field(footer.structs(4)[0].structs(1)[0], 1, Kind.BINARY, b"/etc/passwd"),
        "malformed_record",
    ),
    "another root": (lambda footer: set_field(footer.structs(2)[0], 5, 11), "schema"),
    "no row groups": (lambda footer: set_field(footer, 4, ThriftList(Kind.STRUCT, [])), "footer_limits"),
    "no columns": (lambda footer: set_field(footer.structs(4)[0], 1, ThriftList(Kind.STRUCT, [])), "malformed_record"),
    "no schema": (lambda footer: set_field(footer, 2, ThriftList(Kind.STRUCT, [])), "schema"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.usefixtures("undecoded")
def test_mallory_a_footer_that_lies_is_refused_undecoded(lie: str) -> None:
    change, reason = LIES[lie]
    refused(lying(change), reason)


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


def page_of_values(header: ThriftStruct, num_values: int, num_bytes: int) -> None:
    set_field(header, 2, num_bytes)
    set_field(header.struct(5), 1, num_values)


PAGE_LIES: dict[str, tuple[Callable[[ThriftStruct], None], str]] = {
    "a billion values in few bytes": (lambda header: page_of_values(header, 10**9, 4000), "malformed_record"),
    "a billion values": (lambda header: page_of_values(header, 5 * 10**8, 2 * 10**9), "footer_limits"),
    "two gigabytes": (lambda header: set_field(header, 2, 2**31 - 1), "footer_limits"),
    "more bytes than its values take": (lambda header: set_field(header, 2, 4000), "footer_limits"),
    "negative size": (lambda header: set_field(header, 2, -1), "malformed_record"),
    "negative values": (lambda header: set_field(header.struct(5), 1, -60), "malformed_record"),
    "a page longer than the chunk": (lambda header: set_field(header, 3, 10**6), "malformed_record"),
    "no bytes": (lambda header: set_field(header, 3, 0), "malformed_record"),
    "a dictionary page": (lambda header: set_field(header, 1, 2), "malformed_record"),
    "dictionary indices": (lambda header: set_field(header.struct(5), 2, 8), "malformed_record"),
    "bit-packed levels": (lambda header: set_field(header.struct(5), 3, 4), "malformed_record"),
    "a second header": (lambda header: add_field(header, 8, Kind.STRUCT, ThriftStruct({})), "malformed_record"),
}


@pytest.mark.parametrize("lie", PAGE_LIES)
@pytest.mark.usefixtures("undecoded")
def test_mallory_a_page_header_that_lies_is_refused_undecoded(lie: str) -> None:
    change, reason = PAGE_LIES[lie]
    refused(lying_page("logprobs", change), reason)


@pytest.mark.usefixtures("undecoded")
def test_mallory_a_page_of_no_bytes_is_refused_undecoded() -> None:
    assert "compressed to 0" in refused(lying_page("logprobs", lambda header: None, b""), "malformed_record")


@pytest.mark.usefixtures("undecoded")
def test_mallory_a_page_that_reaches_into_the_next_column_is_refused_undecoded() -> None:
    data = lying_page("logprobs", lambda header: set_field(header, 3, header.i32(3) + 1))
    assert "logprobs: a page of" in refused(data, "malformed_record")


@pytest.mark.usefixtures("undecoded")
def test_mallory_bytes_hidden_in_the_footer_are_refused_undecoded() -> None:
    data = write_rollouts(HONEST, POOL)
    footer_bytes = int.from_bytes(data[-8:-4], "little")
    hidden = data[:-8] + b"hidden" + (footer_bytes + 6).to_bytes(4, "little") + MAGIC
    assert "6 bytes behind" in refused(hidden, "malformed_record")


@pytest.mark.usefixtures("undecoded")
def test_mallory_thousands_of_tiny_pages_are_refused_undecoded() -> None:
    data = write_rollouts([rollout(0, sample, num_tokens=1) for sample in range(5000)], POOL)
    tiny = written(pq.read_table(pa.BufferReader(data)).cast(ARROW_SCHEMA), data_page_size=1, write_batch_size=1)
    assert "too many pages or bytes" in refused(tiny, "footer_limits")


def test_mallory_a_page_that_expands_beyond_its_header_is_malformed() -> None:
    """8 MB behind a header that says 251 bytes, as in an honest page."""
    refused(lying_page("logprobs", lambda header: None, zstd(bytes(8 << 20))), "malformed_record")


def test_mallory_a_page_that_is_shorter_than_its_header_says_is_malformed() -> None:
    refused(lying_page("logprobs", lambda header: None, zstd(b"")), "malformed_record")
    refused(lying_page("logprobs", lambda header: None, b"not zstd"), "malformed_record")


def levels(*runs: tuple[int, int]) -> bytes:
    """Repetition or definition levels as runs (count, level) with their length in front."""
    body = b"".join(_varint(count << 1) + bytes([level]) for count, level in runs)
    return len(body).to_bytes(4, "little") + body


def list_page(repetition: bytes, definition: bytes, values: bytes) -> tuple[Callable[[ThriftStruct], None], bytes]:
    page = repetition + definition + values
    return (lambda header: set_field(header, 2, len(page))), zstd(page)


def test_mallory_values_that_no_row_shows_are_refused() -> None:
    """Sixty rows in a file of twelve: the decoder takes twelve of them and says nothing."""
    change, content = list_page(levels((60, 0)), levels((60, 1)), bytes(240))
    assert refused(lying_page("logprobs", change, content), "schema") == "logprobs: decodes to 12 values, not 60"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(list_page(levels((60, 0)), levels((60, 1)), bytes(240)), id="60 rows of one value"),
        pytest.param(list_page(levels((1, 0), (59, 1)), levels((60, 1)), bytes(240)), id="one row of 60 values"),
        pytest.param(list_page(levels((12, 0), (48, 1)), levels((60, 0)), bytes(240)), id="all rows empty"),
        pytest.param(list_page(levels((60, 1)), levels((60, 1)), bytes(240)), id="a value before the first row"),
        pytest.param(list_page(levels((9, 0)), levels((60, 1)), bytes(240)), id="too few levels"),
        pytest.param(list_page(levels((60, 7)), levels((60, 9)), bytes(240)), id="levels out of range"),
        pytest.param(list_page(b"\xff\xff\xff\x7f", levels((60, 1)), bytes(240)), id="levels beyond the page"),
    ],
)
def test_mallory_levels_that_tell_of_other_rows_are_refused(
    page: tuple[Callable[[ThriftStruct], None], bytes],
) -> None:
    change, content = page
    with pytest.raises(PeerFault) as caught:
        read(lying_page("logprobs", change, content))
    assert caught.value.reason in ("schema", "malformed_record")


# Values that break a rule of the record


NAN = np.float32("nan")


@pytest.mark.parametrize("value", [NAN, np.float32("inf"), np.float32("-inf")])
def test_mallory_a_logprob_that_is_not_finite_is_refused(value: np.float32) -> None:
    logprobs = columns()["logprobs"]
    flat = logprobs.flatten().to_numpy().copy()
    flat[-1] = value
    forged = pa.ListArray.from_arrays(logprobs.offsets, pa.array(flat), type=logprobs.type)
    refused(written(honest_table(logprobs=forged)), "logprob_range")


def test_mallory_a_claimed_reward_that_is_not_finite_is_refused() -> None:
    refused(written(honest_table(claimed_reward=pa.array([NAN] * len(HONEST)))), "schema")


def test_mallory_fewer_logprobs_than_tokens_are_refused() -> None:
    """As many in all, differently shared out."""
    logprobs = columns()["logprobs"]
    offsets = logprobs.offsets.to_numpy().copy()
    offsets[1] += 1
    forged = pa.ListArray.from_arrays(pa.array(offsets), logprobs.values, type=logprobs.type)
    assert "pair up" in refused(written(honest_table(logprobs=forged)), "schema")


@pytest.mark.parametrize("column", ["prompt_tokens", "completion_tokens"])
def test_mallory_an_empty_list_is_refused(column: str) -> None:
    honest = columns()[column]
    offsets = honest.offsets.to_numpy().copy()
    offsets[1] = 0
    forged = pa.ListArray.from_arrays(pa.array(offsets), honest.values, type=honest.type)
    refused(written(honest_table(**{column: forged})), "schema")


@pytest.mark.parametrize("column", ["env", "task_id", "stop_reason"])
@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"EOS"])
def test_mallory_a_name_that_is_none_is_refused(column: str, text: bytes) -> None:
    if text == b"EOS" and column != "stop_reason":
        return
    forged = pa.array([text] * len(HONEST), pa.binary()).cast(pa.string(), safe=False)
    data = written(honest_table(**{column: pa.Array.from_buffers(pa.string(), len(forged), forged.buffers())}))
    with pytest.raises(PeerFault) as caught:
        read(data)
    assert caught.value.reason == ("malformed_record" if text == b"\xff\xfe" else "schema")


def test_no_memory_is_our_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    data = write_rollouts(HONEST, POOL)
    monkeypatch.setattr(pq, "ParquetFile", fail)
    with pytest.raises(OurFault, match="no memory"):
        read(data)


# Noise


def peer_fault_or_rollouts(data: bytes) -> None:
    try:
        rows = read(data, max_uncompressed_bytes=1 << 20)
    except PeerFault:
        return
    assert all(len(row.completion_tokens) == len(row.logprobs) > 0 for row in rows)


def test_every_truncation_is_refused() -> None:
    data = write_rollouts(HONEST, POOL)
    for length in range(len(data)):
        with pytest.raises(PeerFault):
            read(data[:length])


def test_a_flipped_bit_in_any_byte_is_refused_or_gives_other_values() -> None:
    data = write_rollouts(HONEST, POOL)
    rng = random.Random(0)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << rng.randrange(8)
        peer_fault_or_rollouts(bytes(flipped))


@pytest.mark.usefixtures("undecoded")
def test_two_files_in_one_and_bytes_around_a_file_are_refused_undecoded() -> None:
    data = write_rollouts(HONEST, POOL)
    for forged in (data + data, b"\0" + data, data + b"\0", data[:4] + data, data[:-4] + b"PARE", b"PARE" + data[4:]):
        with pytest.raises(PeerFault):
            read(forged)


@given(st.binary(max_size=400))
def test_random_bytes_are_the_peers_fault(body: bytes) -> None:
    for data in (body, MAGIC + body + MAGIC, MAGIC + body + len(body).to_bytes(4, "little") + MAGIC):
        with pytest.raises(PeerFault):
            read(data)


@given(st.data())
def test_random_splices_are_refused_or_give_other_values(data: st.DataObject) -> None:
    honest = write_rollouts(HONEST, POOL)
    start = data.draw(st.integers(0, len(honest)))
    stop = data.draw(st.integers(start, min(start + 40, len(honest))))
    peer_fault_or_rollouts(honest[:start] + data.draw(st.binary(max_size=40)) + honest[stop:])


def test_changing_one_rollout_changes_the_file() -> None:
    assert write_rollouts([replace(HONEST[0], sample=9)], POOL) != write_rollouts([HONEST[0]], POOL)
