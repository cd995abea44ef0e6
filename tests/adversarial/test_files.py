"""W18, W21, W23 to W25: files that do not hold what they say, are larger than they look, or have other columns.

Every fixture goes through a whole verdict: refused for one reason, in little memory, and before it is decoded where its
footer tells enough. More of them, footers that lie among them, are in `tests/wire/test_rollout_file.py`.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from farflung.errors import PeerFault
from farflung.wire.rollout_file import read_rollouts
from farflung.wire.verdict import RejectReason
from hostile_files import Change, file_of, lists, with_column, with_field, with_more
from judged_work import POOL, HandedIn
from limits import bounded
from sampled_work import honest

MAX_S = 10.0
MAX_BYTES = 48 << 20
"""That the process may grow by; the largest bomb would take 80 MB."""


def file(change: Change = lambda table: table, **options: object) -> bytes:
    return file_of(honest(), POOL.digest(), change, **options)  # type: ignore[arg-type]


def of_logprobs(value: float) -> bytes:
    rows = [row.logprobs.copy() for row in honest()]
    rows[3][1] = value
    kind = pa.list_(pa.field("element", pa.float32(), False))
    return file(with_column("logprobs", pa.array(rows, kind)))


def of_names(column: str, name: bytes) -> bytes:
    """Also such as are no text."""
    plain = pa.array([name] * len(honest()), pa.binary()).view(pa.string())
    return file(with_column(column, plain))


def many_columns(table: pa.Table) -> pa.Table:
    for number in range(1000):
        table = table.append_column(pa.field(f"c{number}", pa.int32(), False), table.column("group"))
    return table


def repeated(times: int) -> Change:
    return lambda table: pa.concat_tables([table] * times)


BOMB = lists([20_000_000] + [1] * (len(honest()) - 1), pa.int32())
ROWS = range(len(honest()))
UNDECODED: dict[str, tuple[Callable[[], bytes], RejectReason]] = {
    "w21_a_column_of_text": (
        lambda: file(with_more(pa.field("text", pa.string(), False), ["42"] * len(honest()))),
        RejectReason.SCHEMA,
    ),
    "w23_80_megabytes_of_zeros": (lambda: file(with_column("completion_tokens", BOMB)), RejectReason.FOOTER_LIMITS),
    "w23_equal_long_names": (lambda: of_names("task_id", b"x" * 4_000_000), RejectReason.FOOTER_LIMITS),
    "w23_rows_without_number": (lambda: file(repeated(2000)), RejectReason.FOOTER_LIMITS),
    "w23_many_row_groups": (lambda: file(row_group_size=1), RejectReason.FOOTER_LIMITS),
    "w23_many_columns": (lambda: file(many_columns), RejectReason.SCHEMA),
    "w24_a_duplicate_column": (
        lambda: file(lambda table: table.append_column(table.schema.field("group"), table.column("group"))),
        RejectReason.SCHEMA,
    ),
    "w24_a_nullable_column": (
        lambda: file(with_field("group", pa.field("group", pa.int32(), True))),
        RejectReason.SCHEMA,
    ),
    "w24_a_group_that_is_null": (
        lambda: file(
            lambda table: table.set_column(
                2, pa.field("group", pa.int32(), True), pa.array([None, *ROWS[1:]], pa.int32())
            )
        ),
        RejectReason.SCHEMA,
    ),
    "w24_another_width": (
        lambda: file(with_field("sample", pa.field("sample", pa.int64(), False))),
        RejectReason.SCHEMA,
    ),
    "w24_an_arrow_schema_with_types_of_its_own": (lambda: file(store_schema=True), RejectReason.SCHEMA),
    "w24_a_dictionary": (lambda: file(use_dictionary=True), RejectReason.MALFORMED_RECORD),
    "w13_compressed_otherwise": (lambda: file(compression="gzip"), RejectReason.SCHEMA),
}
DECODED: dict[str, tuple[Callable[[], bytes], RejectReason]] = {
    "w18_a_logprob_of_nan": (lambda: of_logprobs(np.nan), RejectReason.LOGPROB_RANGE),
    "w18_a_logprob_of_infinity": (lambda: of_logprobs(np.inf), RejectReason.LOGPROB_RANGE),
    "w18_a_logprob_of_minus_infinity": (lambda: of_logprobs(-np.inf), RejectReason.LOGPROB_RANGE),
    "w18_fewer_logprobs_than_tokens": (
        lambda: file(with_column("logprobs", lists([1] * len(honest()), pa.float32(), -1.0))),
        RejectReason.SCHEMA,
    ),
    "w19_a_reward_of_nan": (
        lambda: file(with_column("claimed_reward", pa.array([np.nan] * len(honest()), pa.float32()))),
        RejectReason.SCHEMA,
    ),
    "w25_a_name_that_is_no_text": (lambda: of_names("task_id", b"train/\xff\xfe"), RejectReason.MALFORMED_RECORD),
    "w25_a_name_of_nothing": (lambda: of_names("task_id", b""), RejectReason.SCHEMA),
    "w25_a_path_out_of_here": (lambda: of_names("task_id", b"../../../etc/passwd"), RejectReason.WRONG_TASK),
    "w25_an_absolute_path": (lambda: of_names("env", b"/etc/passwd"), RejectReason.WRONG_TASK),
    "w25_a_name_with_a_null": (lambda: of_names("task_id", b"train/0\0.py"), RejectReason.WRONG_TASK),
    "w25_a_template": (lambda: of_names("task_id", b"${NODE_GROUP_ID}"), RejectReason.WRONG_TASK),
    "w25_a_look_alike": (lambda: of_names("task_id", "trаin/0".encode()), RejectReason.WRONG_TASK),  # noqa: RUF001
}


@pytest.fixture
def undecoded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on no bytes may reach the Parquet library."""

    def never(*args: object, **options: object) -> None:
        raise AssertionError("decoded")

    return lambda: monkeypatch.setattr(pq, "ParquetFile", never)


def refused(data: bytes) -> RejectReason | None:
    """The reason, and no memory taken for it."""
    assert len(data) <= POOL.max_file_bytes, "the size of the file would be enough"
    with bounded(max_s=MAX_S, max_bytes=MAX_BYTES):
        return HandedIn(data=data).reason


def test_the_honest_twin_by_the_same_means_is_accepted() -> None:
    assert HandedIn(data=file()).reason is None


@pytest.mark.parametrize("name", UNDECODED)
def test_a_hostile_file_is_refused_undecoded(name: str, undecoded: Callable[[], None]) -> None:
    make, reason = UNDECODED[name]
    data = make()
    undecoded()
    assert refused(data) is reason


@pytest.mark.parametrize("name", DECODED)
def test_a_file_of_hostile_values_is_refused(name: str) -> None:
    make, reason = DECODED[name]
    assert refused(make()) is reason


def test_w23_the_limits_are_those_of_the_caller() -> None:
    """The same honest file passes at its own size and not one below."""
    data, rows = file(), honest()
    longest = max(len(row.completion_tokens) for row in rows)
    read_rollouts(data, pool_digest=POOL.digest(), max_rollouts=len(rows), max_tokens_per_list=longest)
    for limits in ({"max_rollouts": len(rows) - 1}, {"max_tokens_per_list": longest - 1}):
        with pytest.raises(PeerFault, match=r"\d"):
            read_rollouts(data, pool_digest=POOL.digest(), **limits)
