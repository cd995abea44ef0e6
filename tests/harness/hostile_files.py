"""Rollout files that `write_rollouts` would not write: the same columns by way of pyarrow, changed before."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.rollout_schema import POOL_KEY, SCHEMA_VERSION, VERSION_KEY

Change = Callable[[pa.Table], pa.Table]


def file_of(
    rows: Sequence[Rollout],
    pool_digest: str,
    change: Change = lambda table: table,
    *,
    row_group_size: int | None = None,
    **options: Any,
) -> bytes:
    """As an honest file in all that is not changed."""
    table = change(pq.read_table(pa.BufferReader(write_rollouts(rows, pool_digest))))
    honest = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **{**honest, **options}) as writer:
        writer.write_table(table, row_group_size=row_group_size)
        writer.add_key_value_metadata({VERSION_KEY: SCHEMA_VERSION, POOL_KEY: pool_digest.encode()})
    return bytes(sink.getvalue())


def with_column(name: str, values: pa.Array) -> Change:
    """Other values, of the type that the column has."""

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, table.schema.field(at), values)

    return change


def with_field(name: str, field: pa.Field) -> Change:
    """Another type for a column, its values cast."""

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, field, table.column(at).cast(field.type))

    return change


def with_more(field: pa.Field, values: Sequence[object]) -> Change:
    return lambda table: table.append_column(field, pa.array(values, field.type))


def lists(lengths: Sequence[int], kind: pa.DataType, value: object = 0) -> pa.Array:
    """A column of lists of one value; a million zeros compress to nothing."""
    offsets = pa.array([0, *accumulate(lengths)], pa.int32())
    flat = pa.repeat(pa.scalar(value, kind), sum(lengths))
    return pa.ListArray.from_arrays(offsets, flat, type=pa.list_(pa.field("element", kind, False)))
