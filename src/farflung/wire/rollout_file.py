"""Rollouts as Parquet: one row per rollout, in the columns of `wire.rollout_schema`, without nulls.

A foreign file is read in three steps: its bytes against `wire.parquet_profile` and the limits, the decoding, the values
against the rules of `Rollout`. Nothing is allocated for a row before the number and size of all are known. The file's
metadata carries the schema version and the digest of the pool's rules. This module does not know leases, tokenizers or
rewards.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from farflung.errors import OurFault, PeerFault
from farflung.wire.limits import (
    MAX_NAME_BYTES,
    MAX_PROOF_BYTES_PER_ROLLOUT,
    MAX_ROLLOUTS_PER_FILE,
    MAX_TOKENS_PER_LIST,
    MAX_UNCOMPRESSED_BYTES,
)
from farflung.wire.parquet_profile import MAX_FOOTER_BYTES, Column, Layout, check_layout
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.rollout_schema import ARROW_SCHEMA, POOL_KEY, SCHEMA_VERSION, VERSION_KEY, rollout_columns
from farflung.wire.verdict import RejectReason

COMPRESSION_LEVEL = 3


def write_rollouts(rollouts: Sequence[Rollout], pool_digest: str) -> bytes:
    """The file's bytes; the same rollouts give the same bytes with the same version of pyarrow.

    Raises:
        ValueError: there is no rollout, one has an empty list, or a number is not finite.
    """
    _check_writable(rollouts)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        ARROW_SCHEMA,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        data_page_version="1.0",
    ) as writer:
        writer.write_table(_table(rollouts), row_group_size=len(rollouts))
        writer.add_key_value_metadata({VERSION_KEY: SCHEMA_VERSION, POOL_KEY: pool_digest.encode()})
    return bytes(sink.getvalue())


def read_rollouts(
    data: bytes,
    *,
    pool_digest: str,
    max_rollouts: int = MAX_ROLLOUTS_PER_FILE,
    max_tokens_per_list: int = MAX_TOKENS_PER_LIST,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> list[Rollout]:
    """Rollouts of a stranger's file, at least one.

    Args:
        max_rollouts: rows that the caller expects at most.
        max_tokens_per_list: tokens in a prompt or a completion, at most.
        max_uncompressed_bytes: bounds the memory of the call to a small multiple of it.

    Raises:
        PeerFault: for every file that `write_rollouts` could not have written for this pool within the limits.
        OurFault: this process has no memory left.
    """
    columns = rollout_columns(max_tokens_per_list)
    layout = check_layout(data, columns, max_rows=max_rollouts, max_uncompressed_bytes=max_uncompressed_bytes)
    _check_metadata(layout, pool_digest)
    table = _decode(data)
    if not table.schema.equals(ARROW_SCHEMA):
        raise PeerFault(RejectReason.SCHEMA, f"decodes to {table.schema}")
    cells = {
        column.name: _cells(table.column(column.name).combine_chunks(), column, promised)
        for column, promised in zip(columns, layout.num_values, strict=True)
    }
    _check_pairs(cells["completion_tokens"], cells["logprobs"])
    return [Rollout(**dict(zip(cells, row, strict=True))) for row in zip(*cells.values(), strict=True)]


def pool_digest_of(data: bytes) -> str:
    """Of the pool that a file says it is for: for whoever looks at one without a pool.

    Raises:
        PeerFault: it is no rollout file.
    """
    columns = rollout_columns(MAX_TOKENS_PER_LIST)
    layout = check_layout(data, columns, max_rows=MAX_ROLLOUTS_PER_FILE, max_uncompressed_bytes=MAX_UNCOMPRESSED_BYTES)
    said = dict(layout.metadata).get(POOL_KEY, b"")
    return said.decode("ascii", errors="replace")


def _check_writable(rollouts: Sequence[Rollout]) -> None:
    if not rollouts:
        raise ValueError("a rollout file needs at least one rollout")
    for rollout in rollouts:
        if not len(rollout.prompt_tokens) or not len(rollout.completion_tokens):
            raise ValueError(f"rollout ({rollout.group}, {rollout.sample}): prompt and completion must not be empty")
    rewards = np.array([rollout.claimed_reward for rollout in rollouts], dtype=np.float32)
    if not np.isfinite(np.concatenate([rewards, *(rollout.logprobs for rollout in rollouts)])).all():
        raise ValueError("a logprob or a claimed reward is not finite")


def _table(rollouts: Sequence[Rollout]) -> pa.Table:
    def array(field: pa.Field) -> pa.Array:
        values = list(map(attrgetter(field.name), rollouts))
        return _list_array(values, field.type) if pa.types.is_list(field.type) else pa.array(values, field.type)

    return pa.Table.from_arrays([array(field) for field in ARROW_SCHEMA], schema=ARROW_SCHEMA)


def _list_array(values: Sequence[NDArray[Any]], list_type: pa.ListType) -> pa.ListArray:
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    flat = pa.array(np.concatenate(values), list_type.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=list_type)


def _check_metadata(layout: Layout, pool_digest: str) -> None:
    if [key for key, _ in layout.metadata] != [VERSION_KEY, POOL_KEY] or layout.metadata[0][1] != SCHEMA_VERSION:
        raise PeerFault(RejectReason.SCHEMA, f"metadata must be {VERSION_KEY!r} = {SCHEMA_VERSION!r} and {POOL_KEY!r}")
    if layout.metadata[1][1] != pool_digest.encode():
        raise PeerFault(RejectReason.WRONG_POOL, f"file of pool {layout.metadata[1][1][:64]!r}, this is {pool_digest}")


def _decode(data: bytes) -> pa.Table:
    try:
        file = pq.ParquetFile(
            pa.BufferReader(data),
            pre_buffer=False,
            thrift_string_size_limit=MAX_FOOTER_BYTES,
            thrift_container_size_limit=MAX_FOOTER_BYTES,
        )
        table = file.read(use_threads=False)
        table.validate(full=True)
    except MemoryError as error:
        raise OurFault(f"no memory for a rollout file of {len(data)} bytes") from error
    except (pa.ArrowException, OSError) as error:
        raise PeerFault(RejectReason.MALFORMED_RECORD, f"rollout file: {error}") from error
    return table


def _cells(array: pa.Array, column: Column, num_promised: int) -> list[Any]:
    """One value per row, each checked against the rules of its column.

    The number of values is compared with what the layout promised: none may appear, vanish or turn null in decoding.
    """
    values = array.flatten() if column.is_list else array
    if (len(values), array.null_count, values.null_count) != (num_promised, 0, 0):
        raise PeerFault(RejectReason.SCHEMA, f"{column.name}: decodes to {len(values)} values, not {num_promised}")
    if column.is_list:
        flat = values.to_numpy().copy()  # writable, since torch warns of arrays that are not
        _check_finite(flat, column.name, RejectReason.LOGPROB_RANGE)
        return _split(flat, array.offsets.to_numpy(), column)
    if column.name == "claimed_reward":
        _check_finite(array.to_numpy(), column.name, RejectReason.SCHEMA)
    convert = _CONVERT.get(column.name)
    return convert(array.to_pylist(), column.name) if convert else array.to_pylist()


def _split(flat: NDArray[Any], offsets: NDArray[np.int32], column: Column) -> list[NDArray[Any]]:
    starts = offsets - offsets[0]
    lengths = np.diff(starts)
    if lengths.min() < 1 or lengths.max() > column.max_values_per_row:
        reason = RejectReason.SCHEMA if lengths.min() < 1 else RejectReason.FOOTER_LIMITS
        raise PeerFault(reason, f"{column.name}: lists of {lengths.min()} to {lengths.max()} values")
    return [flat[start:stop] for start, stop in pairwise(starts.tolist())]


def _check_finite(values: NDArray[Any], name: str, reason: RejectReason) -> None:
    if not np.isfinite(values).all():
        raise PeerFault(reason, f"{name}: a value is not finite")


def _check_pairs(completions: Sequence[NDArray[Any]], logprobs: Sequence[NDArray[Any]]) -> None:
    if [len(tokens) for tokens in completions] != [len(values) for values in logprobs]:
        raise PeerFault(RejectReason.SCHEMA, "completion_tokens and logprobs do not pair up")


def _names(values: list[str], column: str) -> list[str]:
    for name in set(values):
        if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
            raise PeerFault(RejectReason.SCHEMA, f"{column}: a name of {len(name)} characters")
    return values


def _stop_reasons(values: list[str], column: str) -> list[StopReason]:
    try:
        reason_of = {value: StopReason(value) for value in set(values)}
    except ValueError as error:
        raise PeerFault(RejectReason.SCHEMA, f"{column}: {error}") from None
    return [reason_of[value] for value in values]


def _proofs(values: list[bytes], column: str) -> list[bytes]:
    longest = max(len(value) for value in values)
    if longest > MAX_PROOF_BYTES_PER_ROLLOUT:
        raise PeerFault(RejectReason.FOOTER_LIMITS, f"{column}: {longest} bytes")
    return values


_CONVERT: dict[str, Callable[[Any, str], list[Any]]] = {
    "env": _names,
    "task_id": _names,
    "stop_reason": _stop_reasons,
    "proof": _proofs,
}
