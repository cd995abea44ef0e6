"""Code-output prediction: does the answer say what the program prints or returns?

    same_output    equal lines, but for white space at the ends of lines and blank lines at the end
    same_literal   equal, but for white space outside of quotes and for the kind of quotes, where the reference is a
                   Python list, tuple, dict, set or text: [1, 'a'] is [1,"a"]

The answer is marked with <answer>, in a fenced block, with \\boxed{} or "answer is", or is the whole reply. Numbers
are texts: 1 is not 1.0, and True is not true. Nothing is evaluated: two literals are compared symbol by symbol.
"""

import unicodedata

from farflung.rewards.decision import Decision
from farflung.rewards.extract import boxed, final_answer
from farflung.rewards.verifiers.spoken import marked_text, spoken_text

OPENERS = "[({'\""
"""What a literal of several symbols begins with."""


def grade_code_output(reference: str, completion: str) -> Decision:
    """1.0 if the answer is the output `reference`; None if that is blank."""
    expected = _lines(reference)
    if not expected:
        return Decision(None, "gold_blank")
    answer = _answer(completion)
    if not answer.strip():
        return Decision(0.0, "no_answer")
    if _lines(answer) == expected:
        return Decision(1.0, "same_output")
    if reference.strip()[0] in OPENERS and canonical_literal(answer) == canonical_literal(reference):
        return Decision(1.0, "same_literal")
    return Decision(0.0, "other_output")


def canonical_literal(text: str) -> str:
    r"""Without white space outside of quotes, and with texts in double quotes: `[1, 'a\'']` -> `[1,"a'"]`.

    Escapes of quotes are resolved, all others stay as they are written. An open quote runs to the end.
    """
    kept: list[str] = []
    quote = ""
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if quote and character == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            kept.append(_inside(escaped) if escaped in "'\"" else "\\" + escaped)
        elif quote:
            kept.append('"' if character == quote else _inside(character))
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
            kept.append('"')
        elif not character.isspace():
            kept.append(character)
    return "".join(kept)


def _inside(character: str) -> str:
    """A character of a quoted text, so that a double quote in it is no end."""
    return '\\"' if character == '"' else character


def _answer(completion: str) -> str:
    spoken = spoken_text(completion)
    marked = marked_text(spoken)
    if marked is not None:
        return marked
    return boxed(spoken) or final_answer(completion) or spoken


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in unicodedata.normalize("NFC", text).strip("\r\n").splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines
