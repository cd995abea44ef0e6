"""The columns of a rollout file, once for the writer, the reader and the checks on the bytes.

Names and order are those of the fields of `Rollout`. Changing anything here needs another `SCHEMA_VERSION`. This module
does not read or write.
"""

import pyarrow as pa

from farflung.wire.limits import MAX_NAME_BYTES, MAX_PROOF_BYTES_PER_ROLLOUT, MAX_TOKENS_PER_LIST
from farflung.wire.parquet_profile import Column, Physical

SCHEMA_VERSION = b"1"
"""Files of another version are refused."""
VERSION_KEY = b"farflung.schema_version"
POOL_KEY = b"farflung.pool_digest"

_LENGTH_BYTES = 4
"""In front of each binary value."""


def rollout_columns(max_tokens_per_list: int) -> tuple[Column, ...]:
    """The columns, with lists bounded by `max_tokens_per_list`."""
    return (
        _text("env"),
        _text("task_id"),
        _number("group", Physical.INT32),
        _number("sample", Physical.INT32),
        _list("prompt_tokens", Physical.INT32, max_tokens_per_list),
        _list("completion_tokens", Physical.INT32, max_tokens_per_list),
        _list("logprobs", Physical.FLOAT, max_tokens_per_list),
        _text("stop_reason"),
        _number("policy_version", Physical.INT64),
        _number("target_length", Physical.INT32),
        _number("claimed_reward", Physical.FLOAT),
        Column(name="proof", physical=Physical.BYTE_ARRAY, max_value_bytes=_LENGTH_BYTES + MAX_PROOF_BYTES_PER_ROLLOUT),
    )


def _text(name: str) -> Column:
    return Column(name=name, physical=Physical.BYTE_ARRAY, is_text=True, max_value_bytes=_LENGTH_BYTES + MAX_NAME_BYTES)


def _number(name: str, physical: Physical) -> Column:
    return Column(name=name, physical=physical, max_value_bytes=8 if physical is Physical.INT64 else 4)


def _list(name: str, physical: Physical, max_values: int) -> Column:
    return Column(name=name, physical=physical, is_list=True, max_values_per_row=max_values, max_value_bytes=4)


def _arrow_type(column: Column) -> pa.DataType:
    scalar = {
        Physical.INT32: pa.int32(),
        Physical.INT64: pa.int64(),
        Physical.FLOAT: pa.float32(),
        Physical.BYTE_ARRAY: pa.string() if column.is_text else pa.binary(),
    }[column.physical]
    return pa.list_(pa.field("element", scalar, nullable=False)) if column.is_list else scalar


ARROW_SCHEMA = pa.schema(
    [pa.field(column.name, _arrow_type(column), nullable=False) for column in rollout_columns(MAX_TOKENS_PER_LIST)]
)
