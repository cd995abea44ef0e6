"""Text answers: when two are the same words, and when they are sure not to be.

The same words are the same answer. Different words may be two ways to say one thing, so they are only told apart where
they are entries of one closed list: yes and no, the letters of a multiple choice, days, colours.
"""

import re

_CLOSED_LISTS = tuple(
    frozenset(words.split())
    for words in (
        "yes no",
        "true false",
        "even odd neither both",
        "rational irrational",
        "positive negative zero",
        "increasing decreasing constant",
        "convergent divergent converges diverges",
        "monday tuesday wednesday thursday friday saturday sunday",
        "january february march april may june july august september october november december",
        "red green blue yellow black white orange purple brown pink",
        "north south east west northeast northwest southeast southwest",
        "acute obtuse right",
        "ellipse parabola hyperbola circle line",
        "always sometimes never",
        "odd even",
        "prime composite",
    )
)
_SYNONYMS = {
    "none": "no solution",
    "no solutions": "no solution",
    "no real solution": "no real solutions",
    "dne": "does not exist",
    "infinite": "infinitely many",
    "infinitely many solutions": "infinitely many",
}
_BETWEEN = re.compile(r"\s*,\s*(?:and |or )?|\s+(?:and|or)\s+")
_CHOICE = re.compile(r"\bor\b")
_EDGES = ".,;:!?\"' "
_SPACES = re.compile(r"\s+")
_BRACKETED_LETTER = re.compile(r"[(\[]?([A-Ja-j])[)\].:]?")


def canonical_words(text: str) -> str:
    """Words with single spaces and without marks at the ends."""
    words = _SPACES.sub(" ", text).strip(_EDGES)
    return words[4:] if words.lower().startswith("the ") else words


def same_text(gold: str, answer: str, *, with_case: bool) -> bool | None:
    """Whether two text answers say the same; None where that cannot be told."""
    if gold == answer:
        return True
    one, other = gold.lower(), answer.lower()
    if _SYNONYMS.get(one, one) == _SYNONYMS.get(other, other):
        return not with_case or _SYNONYMS.get(one, one) != one
    if any(one in words and other in words for words in _CLOSED_LISTS):
        return False
    return _same_parts(one, other)


def _same_parts(one: str, other: str) -> bool | None:
    """Lists of words: the same ones in any order are equal, and more of them than asked for is a hedge."""
    ours, theirs = set(_BETWEEN.split(one)), set(_BETWEEN.split(other))
    if ours == theirs:
        return True if bool(_CHOICE.search(one)) == bool(_CHOICE.search(other)) else None  # A or B, A and B
    return False if ours < theirs or theirs < ours else None


def choice_letter(text: str) -> str | None:
    """The letter of a multiple choice, upper case, with or without brackets: `B`, `(b)`, `B.`."""
    match = _BRACKETED_LETTER.fullmatch(text.strip())
    return match[1].upper() if match else None
