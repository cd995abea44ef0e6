"""The reply as a whole: how it begins and ends, case, commas, two responses, the prompt repeated."""

from typing import Annotated

from msgspec import Meta

from farflung.rewards.verifiers.instructions.constraint import Constraint
from farflung.rewards.verifiers.instructions.language import is_mostly_latin
from farflung.rewards.verifiers.instructions.relation import Relation, compares
from farflung.rewards.verifiers.instructions.units import divided, words

RESPONSE_DIVIDER = "******"


class TwoResponses(Constraint, frozen=True, kw_only=True):
    """Exactly two parts with a line of six asterisks between them, neither blank, and not the same."""

    def holds(self, text: str) -> bool:
        parts = divided(text, RESPONSE_DIVIDER)
        return len(parts) == 2 and all(parts) and parts[0] != parts[1]


class RepeatPrompt(Constraint, frozen=True, kw_only=True):
    """The reply begins with the prompt, and goes on; case and outer white space do not matter."""

    prompt_to_repeat: Annotated[str, Meta(min_length=1, max_length=20_000)]

    def holds(self, text: str) -> bool:
        said, prompt = text.strip().casefold(), self.prompt_to_repeat.strip().casefold()
        return said.startswith(prompt) and len(said) > len(prompt)


class EndChecker(Constraint, frozen=True, kw_only=True):
    """The reply ends with the phrase; case, outer white space and a last quotation mark do not matter."""

    end_phrase: Annotated[str, Meta(min_length=1, max_length=1000)]

    def holds(self, text: str) -> bool:
        return text.strip().strip('"').strip().casefold().endswith(self.end_phrase.strip().strip('"').casefold())


class Quotation(Constraint, frozen=True, kw_only=True):
    """The reply stands in double quotation marks, straight or curly."""

    def holds(self, text: str) -> bool:
        stripped = text.strip()
        return len(stripped) > 2 and stripped[0] in '"\u201c' and stripped[-1] in '"\u201d'


class CapitalWordFrequency(Constraint, frozen=True, kw_only=True):
    """So many words are written in capitals only."""

    capital_frequency: Annotated[int, Meta(ge=0, le=10**6)]
    capital_relation: Relation

    def holds(self, text: str) -> bool:
        return compares(sum(word.isupper() for word in words(text)), self.capital_relation, self.capital_frequency)


class EnglishCapital(Constraint, frozen=True, kw_only=True):
    """No lower-case letter, at least one upper-case one, and Latin letters."""

    def holds(self, text: str) -> bool:
        return text.isupper() and is_mostly_latin(text)


class EnglishLowercase(Constraint, frozen=True, kw_only=True):
    """No upper-case letter, at least one lower-case one, and Latin letters."""

    def holds(self, text: str) -> bool:
        return text.islower() and is_mostly_latin(text)


class NoComma(Constraint, frozen=True, kw_only=True):
    """No comma; those of other scripts are other characters."""

    def holds(self, text: str) -> bool:
        return "," not in text
