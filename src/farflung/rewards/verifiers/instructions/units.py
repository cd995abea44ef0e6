"""How words, sentences and paragraphs are counted, by rules that fit in a few lines.

    word        a longest run of letters with their marks, digits and underscores, joined by single apostrophes or
                hyphens: "don't" and "well-known" are one word each
    sentence    ends with a run of . ! ? or their Asian forms, and quotes or brackets that close, where white space
                or the end of the text follows (nothing need follow the Asian ones). A full stop does not end one
                after an abbreviation of `ABBREVIATIONS`, after a single capital letter ("J. Smith"), or after a number
                that begins its line ("1."). What is left at the end with a word in it is a sentence too
    paragraph   between blank lines; or, where an instruction says so, between lines of three asterisks

Linear in the text.
"""

import re

ABBREVIATIONS = frozenset(
    {
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "sr",
        "jr",
        "st",
        "vs",
        "etc",
        "inc",
        "ltd",
        "co",
        "corp",
        "no",
        "fig",
        "e.g",
        "i.e",
    }
)
"""In lower case, without the last full stop."""

_MARKS = (
    "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u0900-\u0903\u093a-\u094f\u0951-\u0957"
    "\u0981-\u0983\u09bc-\u09d7\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57"
    "\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3e-\u0d4d\u0e31\u0e34-\u0e3a"
    "\u0e47-\u0e4e"
)
"""Of Latin, Hebrew, Arabic, the scripts of India, and Thai: the `\\w` of this language leaves them out."""
_LETTERS = rf"[\w{_MARKS}]+"
_WORD = re.compile(rf"{_LETTERS}(?:['\u2019-]{_LETTERS})*")
_END = re.compile(
    r"(?P<end>[.!?\u2026]+)[\"'\u201d\u2019)\]*_]*(?=\s|\Z)|[\u3002\uff01\uff1f\u0964]+[\u300d\u300f\u201d]*"
)
_LAST_TOKEN_CHARS = 8
"""Of the text before a full stop, as much as an abbreviation may need."""


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def num_sentences(text: str) -> int:
    count = start = 0
    for match in _END.finditer(text):
        if match["end"] == "." and _is_no_end(text, match.start()):
            continue
        count += _WORD.search(text, start, match.start()) is not None
        start = match.end()
    return count + (_WORD.search(text, start) is not None)


def paragraphs(text: str) -> list[str]:
    """Those between blank lines, without outer white space, none of them blank."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines).strip() for lines in found if lines]


def divided(text: str, divider: str) -> list[str]:
    """Parts of the text between lines that are nothing but `divider`, without outer white space; blank ones stay."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == divider:
            parts.append([])
        else:
            parts[-1].append(line)
    return ["\n".join(lines).strip() for lines in parts]


def _is_no_end(text: str, stop: int) -> bool:
    """Whether the full stop at `stop` belongs to an abbreviation, an initial or the number of a list."""
    before = text[max(0, stop - _LAST_TOKEN_CHARS) : stop]
    token = re.split(r"[\s(\[\"]", before)[-1]
    if token.isdecimal():
        line_start = text.rfind("\n", max(0, stop - _LAST_TOKEN_CHARS), stop) + 1
        return not text[line_start : stop - len(token)].strip() if line_start else stop == len(token)
    is_initial = len(token) == 1 and token.isupper() and token != "I"
    return is_initial or token.lower() in ABBREVIATIONS
