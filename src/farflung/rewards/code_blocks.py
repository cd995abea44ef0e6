"""Fenced code blocks in a completion.

    ```python          opens: three or more backticks or tildes, then the language
    print(1)           code, whatever it says, even another fence that is shorter or has a language
    ```                closes: the same character, at least as often, and nothing after it

As in CommonMark, with one liberty: a fence may stand under a list item at any depth, and then its own indentation is
taken off the code. A fence in the middle of a line is no fence. The answer of a completion is its last closed block
after the thinking part. One pass over the lines, so linear in the text. This module does not run or judge code.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from farflung.rewards.extract import after_thinking

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marks>`{3,}|~{3,})(?P<info>.*)", re.DOTALL)
_MAX_EXTRA_INDENT = 3
_TAG_MARKS = "{}.[]"


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One block; `code` has no fences and ends without a line feed."""

    language: str
    """First word after the opening fence, lower case; "" if there is none."""
    code: str
    is_closed: bool
    """False for a last block that the end of the text cut short."""


class _Fence(NamedTuple):
    indent: str
    marks: str
    info: str


def last_code_block(completion: str, languages: Collection[str] | None = None) -> str | None:
    """Code of the last closed block after the thinking part; None if there is none, or it is blank.

    Args:
        completion: a whole completion; a thinking part that is still open has no answer.
        languages: only blocks with one of these tags count, "" being a block without a tag; None: any block.
    """
    spoken = after_thinking(completion)
    if spoken is None:
        return None
    last = None
    for block in code_blocks(spoken):
        if block.is_closed and (languages is None or block.language in languages):
            last = block.code
    return last if last is not None and last.strip() else None


def code_blocks(text: str) -> Iterator[CodeBlock]:
    """All blocks of `text` in order; only the last may be open."""
    opening: _Fence | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _fence(line)
        if opening is None:
            if fence is not None and not (fence.marks[0] == "`" and "`" in fence.info):
                opening = fence
                lines = []
        elif fence is not None and _closes(fence, opening):
            yield _block(opening, lines, is_closed=True)
            opening = None
        else:
            lines.append(line)
    if opening is not None:
        yield _block(opening, lines, is_closed=False)


def _fence(line: str) -> _Fence | None:
    if "```" not in line and "~~~" not in line:
        return None
    match = _FENCE.fullmatch(line)
    return _Fence(match["indent"], match["marks"], match["info"].strip()) if match else None


def _closes(fence: _Fence, opening: _Fence) -> bool:
    return (
        fence.marks[0] == opening.marks[0]
        and len(fence.marks) >= len(opening.marks)
        and not fence.info
        and len(fence.indent) <= len(opening.indent) + _MAX_EXTRA_INDENT
    )


def _block(opening: _Fence, lines: list[str], *, is_closed: bool) -> CodeBlock:
    words = opening.info.strip(_TAG_MARKS).split(maxsplit=1)
    language = words[0].strip(_TAG_MARKS).lower() if words else ""
    code = "\n".join(line.removesuffix("\r").removeprefix(opening.indent) for line in lines)
    return CodeBlock(language, code, is_closed)
