"""In which language a text is written, for the thirty languages of IFEval, by script and function words.

    script     the one that most letters belong to; a script of a single language decides alone
    words      among languages of one script, the one whose short frequent words and own letters are the largest share
               of the text's words, if any; a tie is no language

Enough to tell a reply in the wrong language from one in the right one; names, quotations and code do not matter much.
No trained detector: its verdicts would change with its version.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from farflung.rewards.verifiers.instructions.constraint import Constraint
from farflung.rewards.verifiers.instructions.function_words import FUNCTION_WORDS, OWN_LETTERS
from farflung.rewards.verifiers.instructions.units import words

Language = Literal[
    "ar", "bg", "bn", "de", "en", "es", "fa", "fi", "fr", "gu", "he", "hi", "it", "ja", "kn", "ko", "ml", "mr", "ne",
    "pa", "pl", "pt", "ru", "sw", "ta", "te", "th", "uk", "ur", "vi",
]  # fmt: skip

SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "LATIN": ("de", "en", "es", "fi", "fr", "it", "pl", "pt", "sw", "vi"),
    "CYRILLIC": ("bg", "ru", "uk"),
    "ARABIC": ("ar", "fa", "ur"),
    "DEVANAGARI": ("hi", "mr", "ne"),
    "BENGALI": ("bn",),
    "GUJARATI": ("gu",),
    "HEBREW": ("he",),
    "HIRAGANA": ("ja",),
    "KATAKANA": ("ja",),
    "HANGUL": ("ko",),
    "KANNADA": ("kn",),
    "MALAYALAM": ("ml",),
    "GURMUKHI": ("pa",),
    "TAMIL": ("ta",),
    "TELUGU": ("te",),
    "THAI": ("th",),
}
"""First word of a letter's Unicode name -> languages written so."""

MAX_LETTERS = 20_000
"""Of a text that are looked at."""


class ResponseLanguage(Constraint, frozen=True, kw_only=True):
    """The reply is written in the language, an ISO 639-1 code."""

    language: Language

    def holds(self, text: str) -> bool:
        return language_of(text) == self.language


def language_of(text: str) -> str | None:
    """ISO 639-1 code; None if there is no letter, or none of the thirty stands out."""
    script = _script(text)
    candidates = SCRIPTS.get(script, ())
    if len(candidates) <= 1:
        return candidates[0] if candidates else None
    found = [word.casefold() for word in words(text[:MAX_LETTERS])]
    scores = Counter({language: _score(language, found) for language in candidates})
    (best, most), (_, second) = scores.most_common(2)
    return best if most > second else None


def is_mostly_latin(text: str) -> bool:
    return _script(text) == "LATIN"


def _score(language: str, found: list[str]) -> int:
    known, letters = FUNCTION_WORDS[language], set(OWN_LETTERS.get(language, ""))
    return sum((word in known) + (not letters.isdisjoint(word)) for word in found)


def _script(text: str) -> str:
    """Of most letters; Japanese where any kana stand among Chinese characters, and "" without letters."""
    counts = Counter(
        unicodedata.name(character, "").partition(" ")[0] for character in text[:MAX_LETTERS] if character.isalpha()
    )
    if not counts:
        return ""
    if counts["CJK"] and counts["HIRAGANA"] + counts["KATAKANA"]:
        counts["HIRAGANA"] += counts.pop("CJK")
    return counts.most_common(1)[0][0]
