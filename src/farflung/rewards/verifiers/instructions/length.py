"""How many words, sentences and paragraphs; `units` says what each is."""

from typing import Annotated

from msgspec import Meta

from farflung.rewards.verifiers.instructions.constraint import Constraint
from farflung.rewards.verifiers.instructions.relation import Relation, compares
from farflung.rewards.verifiers.instructions.units import divided, num_sentences, paragraphs, words

Count = Annotated[int, Meta(ge=0, le=10**6)]
Positive = Annotated[int, Meta(ge=1, le=10**4)]
PARAGRAPH_DIVIDER = "***"


class NumberWords(Constraint, frozen=True, kw_only=True):
    num_words: Count
    relation: Relation

    def holds(self, text: str) -> bool:
        return compares(len(words(text)), self.relation, self.num_words)


class NumberSentences(Constraint, frozen=True, kw_only=True):
    num_sentences: Count
    relation: Relation

    def holds(self, text: str) -> bool:
        return compares(num_sentences(text), self.relation, self.num_sentences)


class NumberParagraphs(Constraint, frozen=True, kw_only=True):
    """Exactly so many, separated by lines of `***`; only the first and the last part may be blank, and do not count."""

    num_paragraphs: Positive

    def holds(self, text: str) -> bool:
        parts = divided(text, PARAGRAPH_DIVIDER)
        inner = parts[1:-1] if len(parts) > 1 else []
        return all(inner) and sum(map(bool, parts)) == self.num_paragraphs


class NthParagraphFirstWord(Constraint, frozen=True, kw_only=True):
    """Exactly `num_paragraphs` between blank lines, and the n-th begins with the word; case does not matter."""

    num_paragraphs: Positive
    nth_paragraph: Positive
    first_word: Annotated[str, Meta(min_length=1, max_length=200)]

    def holds(self, text: str) -> bool:
        found = paragraphs(text)
        if len(found) != self.num_paragraphs or self.nth_paragraph > self.num_paragraphs:
            return False
        first = words(found[self.nth_paragraph - 1])[:1]
        return first == words(self.first_word)[:1] or [word.casefold() for word in first] == [
            self.first_word.casefold()
        ]
