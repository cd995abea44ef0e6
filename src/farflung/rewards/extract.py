r"""Where in a completion the final answer stands.

    answer       the text after the thinking part, and there the last mark of the first kind that occurs:
    \boxed{x}    braces balanced, `\{` and `\}` count as text; also `\boxed x`, and `\fbox` the same
    #### x       to the end of the line
    answer is x  to the end of the sentence or line, case ignored, without a closing full stop; also `answer: x`

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
BOXES = ("\\boxed", "\\fbox")
HASH_MARK = "####"

_BOX = re.compile("|".join(re.escape(box) for box in BOXES))
_BRACE = re.compile(r"\s*\{")
_ANSWER_IS = re.compile(r"\banswer(?:[ \t]{1,8}is\b[ \t]{0,8}:?|[ \t]{0,8}:)[ \t]{0,8}(?:\*\*)?", re.IGNORECASE)
_END_OF_SENTENCE = re.compile(r"[.!][ \t]+[A-Z]|\*\*|\n")


def final_answer(text: str) -> str | None:
    """The marked answer after the thinking part, stripped; None if there is none, or it is blank."""
    spoken = after_thinking(text)
    if spoken is None:
        return None
    if any(box in spoken for box in BOXES):
        return boxed(spoken)
    if HASH_MARK in spoken:
        return _to_end_of_line(spoken, spoken.rindex(HASH_MARK) + len(HASH_MARK))
    return _after_answer_is(spoken)


def has_mark(text: str) -> bool:
    """Whether `final_answer` has anything to look for in `text`: a thinking part or a mark of an answer."""
    return (
        THINK_OPEN in text
        or THINK_CLOSE in text
        or any(box in text for box in BOXES)
        or HASH_MARK in text
        or _ANSWER_IS.search(text) is not None
    )


def after_thinking(text: str) -> str | None:
    """What follows the last `</think>`, or all of `text` if it has no thinking part; None if a part is still open."""
    _, _, spoken = text.rpartition(THINK_CLOSE)
    return None if THINK_OPEN in spoken else spoken


def boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}`, `\boxed x` or `\fbox{...}`, stripped; None if none, cut short, or blank."""
    start, box = _last_box(text)
    if start < 0:
        return None
    rest = text[start + len(box) :].lstrip()
    if not rest.startswith("{"):
        words = rest.split(maxsplit=1)
        return words[0].rstrip("$.,") or None if words else None
    end = closing_brace(rest)
    return None if end is None else rest[1:end].strip() or None


def _last_box(text: str) -> tuple[int, str]:
    """(place, command) of the last box that is not inside another one: `\\boxed{1 or \\boxed{2}}` is one claim."""
    last, box, end = -1, "", 0
    for match in _BOX.finditer(text):
        if match.start() < end:
            continue
        last, box = match.start(), match[0]
        opening = _BRACE.match(text, match.end())
        if opening is not None:
            closing = closing_brace(text, opening.end() - 1)
            if closing is None:
                break  # cut short, and all that follows is in it
            end = closing
    return last, box


def tagged(text: str) -> str | None:
    """Content of the last `<answer>...</answer>`, stripped; None if there is none, it is cut short, or blank."""
    _, opened, rest = text.rpartition(ANSWER_OPEN)
    content, closed, _ = rest.partition(ANSWER_CLOSE)
    return content.strip() or None if opened and closed else None


def closing_brace(text: str, position: int = 0, end: int | None = None) -> int | None:
    r"""Position of the brace that closes the one at `position`; `\{` and `\}` are text. None if none before `end`."""
    depth = 0
    end = len(text) if end is None else end
    while position < end:
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
    if last is None:
        return None
    end = _END_OF_SENTENCE.search(text, last.end())
    claim = text[last.end() : end.start() if end else len(text)]
    return claim.strip().rstrip(".").rstrip() or None


def _to_end_of_line(text: str, start: int) -> str | None:
    line, _, _ = text[start:].partition("\n")
    return line.strip() or None
