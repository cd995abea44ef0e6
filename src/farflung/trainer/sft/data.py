"""Examples from JSONL or Parquet: chats, or prompts with completions.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}, ...]}
    {"prompt": "...", "completion": "..."}       the prompt is a user's message; or a list of messages

Every row is checked before anything is trained; the first wrong one is named. Does not know tokens.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from farflung.errors import UserError

MAX_LINE_BYTES = 16 << 20
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    messages: tuple[Mapping[str, str], ...]
    """`role` and `content`; at least one assistant's."""


def read_examples(path: Path) -> list[Example]:
    """All examples of a file, in its order.

    Raises:
        UserError: no such file, another format, or a row that is no example (with its number).
    """
    if not path.is_file():
        raise UserError(f"{path} is no file: give a .jsonl or .parquet file of examples")
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _json_lines(path)
    examples = [_example(row, f"{path}, row {number}") for number, row in enumerate(rows, start=1)]
    if not examples:
        raise UserError(f"{path} has no examples")
    return examples


def _json_lines(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if len(line) > MAX_LINE_BYTES:
                raise UserError(f"{path}, row {number}: {len(line)} bytes, at most {MAX_LINE_BYTES} are read")
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, row {number} is not JSON: {error}") from error


def _parquet_rows(path: Path) -> Iterator[Any]:
    try:
        file = pq.ParquetFile(path)
        wanted = [name for name in ("messages", "prompt", "completion") if name in file.schema_arrow.names]
        if "messages" not in wanted and len(wanted) < 2:
            raise UserError(
                f"{path} has columns {file.schema_arrow.names}: messages, or prompt and completion, are read"
            )
        for batch in file.iter_batches(columns=wanted):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a Parquet file: {error}") from error


def _example(row: Any, where: str) -> Example:
    if not isinstance(row, dict):
        raise UserError(f"{where} is {str(row)[:60]!r}: it must be an object")
    if row.get("messages") is not None:
        messages = _messages(row["messages"], where)
    elif row.get("prompt") is not None and row.get("completion") is not None:
        prompt, completion = row["prompt"], row["completion"]
        before = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else _messages(prompt, where)
        after = ({"role": "assistant", "content": completion},)
        messages = before + (after if isinstance(completion, str) else _messages(completion, where))
    else:
        raise UserError(f"{where} has {sorted(row)}: it needs messages, or prompt and completion")
    if not any(message["role"] == "assistant" for message in messages):
        raise UserError(f"{where} has no assistant's message: there is nothing to learn")
    return Example(messages=messages)


def _messages(value: Any, where: str) -> tuple[Mapping[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise UserError(f"{where}: messages are {str(value)[:60]!r}: they must be a list of role and content")
    for message in value:
        is_whole = isinstance(message, dict) and isinstance(message.get("content"), str)
        if not is_whole or message.get("role") not in ROLES:
            raise UserError(f"{where}: {str(message)[:80]} must have a content and a role of {', '.join(ROLES)}")
    return tuple({"role": message["role"], "content": message["content"]} for message in value)
