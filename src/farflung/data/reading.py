"""Records of somebody's files: JSON lines, JSON and Parquet, gzipped or not, in a stream and within limits.

Nothing is unpickled or evaluated; a file larger than memory is read row by row. This module knows no schema.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from farflung.data.task_row import MAX_LINE_BYTES, Source
from farflung.errors import UserError

MAX_JSON_BYTES = 1 << 30
"""Of a file that is one JSON value, which has to be in memory."""
ROWS_PER_BATCH = 64
PIECE_BYTES = 1 << 20


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Every record of a file, or of all files of a folder in order of their names.

    Raises:
        UserError: no such file, another format, or damaged.
    """
    if path.is_dir():
        for child in sorted(path.rglob("*")):
            if child.is_file() and _kind(child):
                yield from records(child)
        return
    kind = _kind(path)
    if not kind:
        raise UserError(f"{path}: files are read that end in .jsonl, .json or .parquet, the first two also with .gz")
    try:
        yield from _READERS[kind](path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def source_of(path: Path) -> list[Source]:
    """What was read, by name and hash."""
    if path.is_dir():
        return [
            found for child in sorted(path.rglob("*")) if child.is_file() and _kind(child) for found in source_of(child)
        ]
    hasher, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            hasher.update(piece)
            size += len(piece)
    return [Source(name=path.name, num_bytes=size, sha256=hasher.hexdigest())]


def _kind(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return next((kind for kind in _READERS if name.endswith(f".{kind}")), "")


def _open(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb")) if path.name.endswith(".gz") else path.open("rb")


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path) as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise UserError(f"{path}, row {number} has more than {MAX_LINE_BYTES} bytes")
            if line.strip():
                yield _record(_parsed(line, f"{path}, row {number}"), f"{path}, row {number}")


def _json(path: Path) -> Iterator[dict[str, Any]]:
    """A list of records, or one."""
    with _open(path) as file:
        data = file.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise UserError(f"{path} has more than {MAX_JSON_BYTES} bytes: write it as JSON lines")
    value = _parsed(data, str(path))
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        yield _record(item, f"{path}, row {number}")


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise UserError(f"{path} is not a Parquet file that can be read: {error}") from error


_READERS = {"jsonl": _json_lines, "json": _json, "parquet": _parquet}


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON: {error}") from error


def _record(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where} is no record: each row must be an object with named fields")
    return value
