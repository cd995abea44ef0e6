r"""Where in a completion the final answer stands.

    answer       the text after the thinking part, and there the last mark of the first kind that occurs:
    \boxed{x}    braces balanced, `\{` and `\}` count as text; also `\boxed x`
    #### x       to the end of the line
    answer is x  to the end of the line, case ignored, without a closing full stop

A thinking part that was opened and never closed has no answer: a number in it is a thought, not a claim. The last mark
wins even if it is cut short (then there is no answer), since an earlier one was superseded. Without a mark there is no
final answer, so that "7, 12 or 42" does not count as 42. All of it is linear in the length of the text. This module
does not compare answers.
"""

import re

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
ANSWER_OPEN = "<answer>"
ANSWER_CLOSE = "</answer>"
BOX = "\\boxed"
HASH_MARK = "####"

_ANSWER_IS = re.compile(r"\banswer\s+is\b[ \t]*:?", re.IGNORECASE)


def final_answer(text: str) -> str | None:
    """The marked answer after the thinking part, stripped; None if there is none, or it is blank."""
    spoken = after_thinking(text)
    if spoken is None:
        return None
    if BOX in spoken:
        return boxed(spoken)
    if HASH_MARK in spoken:
        return _to_end_of_line(spoken, spoken.rindex(HASH_MARK) + len(HASH_MARK))
    return _after_answer_is(spoken)


def after_thinking(text: str) -> str | None:
    """What follows the last `</think>`, or all of `text` if it has no thinking part; None if a part is still open."""
    _, _, spoken = text.rpartition(THINK_CLOSE)
    return None if THINK_OPEN in spoken else spoken


def boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}` or `\boxed x`, stripped; None if there is none, it is cut short, or blank."""
    start = text.rfind(BOX)
    if start < 0:
        return None
    rest = text[start + len(BOX) :].lstrip()
    if not rest.startswith("{"):
        words = rest.split(maxsplit=1)
        return words[0].rstrip("$.,") or None if words else None
    end = _closing_brace(rest)
    return None if end is None else rest[1:end].strip() or None


def tagged(text: str) -> str | None:
    """Content of the last `<answer>...</answer>`, stripped; None if there is none, it is cut short, or blank."""
    _, opened, rest = text.rpartition(ANSWER_OPEN)
    content, closed, _ = rest.partition(ANSWER_CLOSE)
    return content.strip() or None if opened and closed else None


def _closing_brace(text: str) -> int | None:
    """Position of the brace that closes the one at position 0."""
    depth = 0
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return None


def _after_answer_is(text: str) -> str | None:
    last = None
    for last in _ANSWER_IS.finditer(text):  # noqa: B007 - the loop variable is the result
        pass
    return None if last is None else _to_end_of_line(text, last.end(), drop=".")


def _to_end_of_line(text: str, start: int, drop: str = "") -> str | None:
    line, _, _ = text[start:].partition("\n")
    return line.strip().rstrip(drop).rstrip() or None if drop else line.strip() or None
