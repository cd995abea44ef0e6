"""Every kind of instruction by the name that IFEval gives it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from farflung.rewards.verifiers.instructions.constraint import Constraint
from farflung.rewards.verifiers.instructions.content import NumberPlaceholders, Postscript
from farflung.rewards.verifiers.instructions.form import (
    ConstrainedResponse,
    JsonFormat,
    MultipleSections,
    NumberBulletLists,
    NumberHighlightedSections,
    Title,
)
from farflung.rewards.verifiers.instructions.keywords import Existence, ForbiddenWords, Frequency, LetterFrequency
from farflung.rewards.verifiers.instructions.language import ResponseLanguage
from farflung.rewards.verifiers.instructions.length import (
    NthParagraphFirstWord,
    NumberParagraphs,
    NumberSentences,
    NumberWords,
)
from farflung.rewards.verifiers.instructions.whole import (
    CapitalWordFrequency,
    EndChecker,
    EnglishCapital,
    EnglishLowercase,
    NoComma,
    Quotation,
    RepeatPrompt,
    TwoResponses,
)

KINDS: Mapping[str, type[Constraint]] = {
    "keywords:existence": Existence,
    "keywords:frequency": Frequency,
    "keywords:forbidden_words": ForbiddenWords,
    "keywords:letter_frequency": LetterFrequency,
    "language:response_language": ResponseLanguage,
    "length_constraints:number_sentences": NumberSentences,
    "length_constraints:number_paragraphs": NumberParagraphs,
    "length_constraints:number_words": NumberWords,
    "length_constraints:nth_paragraph_first_word": NthParagraphFirstWord,
    "detectable_content:number_placeholders": NumberPlaceholders,
    "detectable_content:postscript": Postscript,
    "detectable_format:number_bullet_lists": NumberBulletLists,
    "detectable_format:constrained_response": ConstrainedResponse,
    "detectable_format:number_highlighted_sections": NumberHighlightedSections,
    "detectable_format:multiple_sections": MultipleSections,
    "detectable_format:json_format": JsonFormat,
    "detectable_format:title": Title,
    "combination:two_responses": TwoResponses,
    "combination:repeat_prompt": RepeatPrompt,
    "startend:end_checker": EndChecker,
    "startend:quotation": Quotation,
    "change_case:capital_word_frequency": CapitalWordFrequency,
    "change_case:english_capital": EnglishCapital,
    "change_case:english_lowercase": EnglishLowercase,
    "punctuation:no_comma": NoComma,
}


class UnknownInstruction(ValueError):
    """No such kind, or arguments that it does not take."""


def constraint(kind: str, arguments: Mapping[str, Any]) -> Constraint:
    """The constraint of that kind; arguments that are None count as absent, as IFEval's files have them.

    Raises:
        UnknownInstruction: no such kind, or wrong arguments.
    """
    if kind not in KINDS:
        raise UnknownInstruction(f"no instruction is called {kind[:80]!r}")
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        made: Constraint = msgspec.convert(given, KINDS[kind])
    except msgspec.ValidationError as error:
        raise UnknownInstruction(f"{kind}: {error}") from None
    return made
