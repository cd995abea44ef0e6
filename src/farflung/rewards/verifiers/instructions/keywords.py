"""Which words occur, and how often. Case never matters."""

import re
from typing import Annotated

from msgspec import Meta

from farflung.rewards.verifiers.instructions.constraint import Constraint
from farflung.rewards.verifiers.instructions.relation import Relation, compares

Word = Annotated[str, Meta(min_length=1, max_length=200)]
Words = Annotated[tuple[Word, ...], Meta(min_length=1, max_length=100)]
Count = Annotated[int, Meta(ge=0, le=10**6)]


class Existence(Constraint, frozen=True, kw_only=True):
    """Every keyword occurs, also inside a longer word."""

    keywords: Words

    def holds(self, text: str) -> bool:
        folded = text.casefold()
        return all(keyword.casefold() in folded for keyword in self.keywords)


class Frequency(Constraint, frozen=True, kw_only=True):
    """The keyword occurs so often; occurrences do not overlap, and those inside longer words count."""

    keyword: Word
    frequency: Count
    relation: Relation

    def holds(self, text: str) -> bool:
        return compares(text.casefold().count(self.keyword.casefold()), self.relation, self.frequency)


class ForbiddenWords(Constraint, frozen=True, kw_only=True):
    """None of them occurs as a word of its own."""

    forbidden_words: Words

    def holds(self, text: str) -> bool:
        folded = text.casefold()
        return not any(
            re.search(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", folded) for word in self.forbidden_words
        )


class LetterFrequency(Constraint, frozen=True, kw_only=True):
    """The letter (or other single character) occurs so often."""

    letter: Annotated[str, Meta(min_length=1, max_length=1)]
    let_frequency: Count
    let_relation: Relation

    def holds(self, text: str) -> bool:
        return compares(text.casefold().count(self.letter.casefold()), self.let_relation, self.let_frequency)
