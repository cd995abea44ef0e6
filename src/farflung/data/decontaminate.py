"""Tasks that share a long run of words with an evaluation set: n-grams of words (13 in the GPT-3 paper, appendix C).

    words     lower case, letters and digits alone
    overlap   the task has `size` words in a row that an evaluation item has too; a shorter item counts whole, if it has
              at least `MIN_WORDS` words

Pure; it does not know where tasks come from.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

DEFAULT_SIZE = 13
MIN_WORDS = 8
"""Of an evaluation item that is shorter than an n-gram: below, common phrases would match."""

_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """
    >>> words_of("It's 3 o'clock.")
    ['it', 's', '3', 'o', 'clock']
    """
    return _WORD.findall(text.lower())


@dataclass(slots=True)
class Overlaps:
    """The n-grams of evaluation sets, by hash."""

    size: int = DEFAULT_SIZE
    _grams: dict[int, dict[int, str]] = field(default_factory=dict)
    """Length -> hash of a run of words -> the set that has it."""

    def __post_init__(self) -> None:
        if self.size < MIN_WORDS:
            raise ValueError(f"n-grams of {self.size} words: at least {MIN_WORDS}, or common phrases match")

    def add(self, name: str, texts: Iterable[str]) -> None:
        """Items of an evaluation set."""
        for text in texts:
            words = words_of(text)
            length = min(self.size, len(words))
            if length >= MIN_WORDS:
                grams = self._grams.setdefault(length, {})
                for gram in _grams(words, length):
                    grams.setdefault(gram, name)

    def find(self, text: str) -> str | None:
        """Name of a set that shares a run of words; None if none does."""
        words = words_of(text)
        for length, known in self._grams.items():
            for gram in _grams(words, length):
                if gram in known:
                    return known[gram]
        return None


def _grams(words: list[str], length: int) -> Iterator[int]:
    return (hash(tuple(words[start : start + length])) for start in range(len(words) - length + 1))
