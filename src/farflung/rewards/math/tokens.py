r"""Text in the spelling of `spelling` -> tokens.

    NUMBER     12, 1.5, .5, 1{,}234, 1.2e3, 0.1\overline{6}
    NAME       x, \alpha, pi, AB, x1 (as x_1)
    FUNCTION   \sin, sqrt, ln
    COMMAND    any other \command; a date or a literal of a programming language (0x10), which no grammar knows
    WORD       a word of a text: `\text{ cm}`, `solution`
    SYMBOL     one operator or bracket

A comma between groups of three digits is a thousands separator only outside of brackets: 1,234 is a number, (1,234) a
pair. Words of one letter inside `\text{}` are names that say so (`is_text`), since they may be units.
"""

import re
from enum import IntEnum
from fractions import Fraction
from typing import NamedTuple

from farflung.rewards.extract import closing_brace
from farflung.rewards.math.limits import MAX_DIGITS, MAX_TOKENS, CutShort, OverLimits
from farflung.rewards.math.units import is_unit_word
from farflung.rewards.math.word_lists import FUNCTIONS, GREEK, NUMBER_SETS, SHORT_WORDS, TEXT_COMMANDS


class TokenKind(IntEnum):
    """What a token is."""

    NUMBER = 0
    NAME = 1
    FUNCTION = 2
    COMMAND = 3
    WORD = 4
    SYMBOL = 5
    END = 6


class Token(NamedTuple):
    """One token; `text` is without the backslash for names, functions and commands."""

    kind: TokenKind
    text: str
    is_spaced: bool = False
    """White space stands before it."""
    is_text: bool = False
    r"""It stood inside `\text{}`."""


END = Token(TokenKind.END, "")

_NAMES = {"pi": "pi", "infty": "infinity", "infinity": "infinity", "oo": "infinity", "inf": "infinity", "Pi": "pi"}
_AFTER_DIGITS = frozenset(("st", "nd", "rd", "th"))
_CONNECTIVES = frozenset(("and", "or", "in"))

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<repeating>[0-9]*\.[0-9]*\\(?:overline|bar|dot)\s*(?:\{[0-9]+\}|[0-9]))
  | (?P<foreign>
        [0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])(?![0-9]) | [0-9]{1,2}/[0-9]{1,2}/[0-9]{4}(?![0-9])
      | 0[xXbBoO][0-9][0-9A-Fa-f]* )
  | (?P<number>
        (?:[0-9]{1,3}(?:(?:\{,\}|\\,|\\!|,\\!)[0-9]{3})+(?![0-9]) | [0-9]+) (?:\.[0-9]+|\.(?![0-9.]))?
        (?:[eE][+-]?[0-9]+(?![A-Za-z0-9.]))?
      | \.[0-9]+(?:[eE][+-]?[0-9]+(?![A-Za-z0-9.]))? )
  | (?P<set>\\mathbb\s*\{?\s*[RZNQC]\s*\}?(?:\s*[\^_]\s*(?:\{\s*[-+*]\s*\}|[-+*]))?)
  | \\(?P<command>[A-Za-z]+)
  | (?P<escaped>\\.)
  | (?P<indexed>[A-Za-z][0-9]+(?![A-Za-z0-9]))
  | (?P<word>[A-Za-z]+)
  | (?P<symbol><=|>=|!=|==|\*\*|\.\.\.|[^\s])
    """,
    re.VERBOSE | re.DOTALL,
)
_PERIOD = re.compile(r"\\(?:overline|bar|dot)")
_THIN_SPACES = frozenset((r"\,", r"\!", r"\/"))
_SEPARATORS = re.compile(r"\{,\}|\\,|\\!|,\\!")
_OPENING = frozenset(("(", "[", r"\{", "langle"))
_CLOSING = frozenset((")", "]", r"\}", "rangle"))


def tokenize(text: str) -> list[Token]:
    """All tokens of `text`; raises OverLimits, and CutShort for an unclosed text group."""
    tokens: list[Token] = []
    _scan(text, 0, len(text), tokens, is_text=False)
    return _merge_thousands(tokens)


def number_value(text: str) -> int | Fraction:
    """Value of the text of a NUMBER token; raises OverLimits."""
    if len(text) > MAX_DIGITS:
        raise OverLimits("too many digits")
    if text.isdigit():
        return int(text)
    if "\\" in text and _PERIOD.search(text):
        return _repeating_value(text)
    text = _SEPARATORS.sub("", text)
    mantissa, _, exponent = text.replace("E", "e").partition("e")
    whole, _, decimals = mantissa.partition(".")
    shift = (int(exponent) if exponent else 0) - len(decimals)
    if abs(shift) > MAX_DIGITS:
        raise OverLimits("decimal exponent too large")
    digits = int(whole + decimals or "0")
    value = digits * 10**shift if shift >= 0 else Fraction(digits, 10**-shift)
    return value.numerator if value.denominator == 1 else value


def _repeating_value(text: str) -> Fraction:
    r"""0.1\overline{6} = 1/10 + 6/90."""
    head, _, tail = text.partition("\\")
    period = "".join(filter(str.isdigit, tail))
    whole, _, decimals = head.partition(".")
    scale = 10 ** len(decimals)
    return Fraction(int(whole + decimals or "0"), scale) + Fraction(int(period), scale * (10 ** len(period) - 1))


def _scan(text: str, start: int, end: int, tokens: list[Token], *, is_text: bool) -> None:
    position = start
    is_spaced = False
    while position < end:
        if len(tokens) > MAX_TOKENS:
            raise OverLimits("too many tokens")
        match = _TOKEN.match(text, position, end)
        assert match is not None  # the last alternatives take any character
        position = match.end()
        kind = match.lastgroup
        found = match[kind] if kind is not None else ""
        if kind == "space" or found in _THIN_SPACES:
            is_spaced = True
            continue
        if kind == "command" and found in TEXT_COMMANDS:
            opened = re.compile(r"\s*\{").match(text, position, end)
            if opened is not None:
                closed = closing_brace(text, opened.end() - 1, end)
                if closed is None:
                    raise CutShort("unclosed text")
                _scan(text, opened.end(), closed, tokens, is_text=True)
                position = closed + 1
            is_spaced = False
            continue
        if found in _AFTER_DIGITS and tokens and tokens[-1].kind is TokenKind.NUMBER and not is_spaced:
            tokens.append(Token(TokenKind.WORD, found, is_spaced, is_text))  # 5th is not 5*t*h
        elif kind == "word":
            tokens.extend(_word_tokens(found, is_spaced=is_spaced, is_text=is_text))
        else:
            tokens.append(_token(str(kind), found, is_spaced=is_spaced, is_text=is_text))
        is_spaced = False


def _token(kind: str, found: str, *, is_spaced: bool, is_text: bool) -> Token:
    if kind in ("number", "repeating"):
        return Token(TokenKind.NUMBER, found, is_spaced, is_text)
    if kind == "foreign":
        return Token(TokenKind.COMMAND, found, is_spaced, is_text)
    if kind == "set":
        letter = next(character for character in found.removeprefix("\\mathbb") if character.isalpha())
        part = next((character for character in found if character in "+-*"), "")
        return Token(TokenKind.NAME, NUMBER_SETS[letter] + part, is_spaced)
    if kind == "indexed":
        return Token(TokenKind.NAME, f"{found[0]}_{found[1:]}", is_spaced, is_text)
    if kind == "command":
        if found in FUNCTIONS:
            return Token(TokenKind.FUNCTION, found, is_spaced)
        if found in _NAMES or found in GREEK:
            return Token(TokenKind.NAME, _NAMES.get(found, found), is_spaced)
        return Token(TokenKind.COMMAND, found, is_spaced)
    return Token(TokenKind.SYMBOL, {"**": "^", "==": "=", "\\%": "%"}.get(found, found), is_spaced)


def _word_tokens(word: str, *, is_spaced: bool, is_text: bool) -> list[Token]:
    if word.lower() in _CONNECTIVES:
        return [Token(TokenKind.SYMBOL, word.lower(), is_spaced, is_text)]
    if word == "min" or (word == "sec" and is_text):  # time; the functions are `\min` and `\sec`
        return [Token(TokenKind.WORD, word, is_spaced, is_text)]
    if word in FUNCTIONS:
        return [Token(TokenKind.FUNCTION, word, is_spaced)]
    if word in _NAMES or word in GREEK:
        return [Token(TokenKind.NAME, _NAMES.get(word, word), is_spaced)]
    if len(word) == 1 or (len(word) <= 3 and word.isupper() and not is_text):
        return [Token(TokenKind.NAME, word, is_spaced, is_text)]
    if is_text or len(word) > 3 or is_unit_word(word) or word.lower() in SHORT_WORDS:
        return [Token(TokenKind.WORD, word, is_spaced, is_text)]
    return [Token(TokenKind.NAME, letter, is_spaced and index == 0) for index, letter in enumerate(word)]


def _merge_thousands(tokens: list[Token]) -> list[Token]:
    """Join the pieces of `1,234,567` where the whole unspaced run has that form and no bracket is open."""
    if not any(token.text == "," for token in tokens):
        return tokens
    merged: list[Token] = []
    depth = 0
    index = 0
    while index < len(tokens):
        token = tokens[index]
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if token.kind is TokenKind.NUMBER and depth <= 0:
            stop = _end_of_run(tokens, index)
            pieces = [piece.text for piece in tokens[index:stop:2]]
            if len(pieces) > 1 and _is_grouped(pieces):
                merged.append(token._replace(text="".join(pieces)))
            else:
                merged.extend(tokens[index:stop])
            index = stop
            continue
        merged.append(token)
        index += 1
    return merged


def _end_of_run(tokens: list[Token], start: int) -> int:
    """End of the run of numbers with single commas, without white space, that starts at `start`."""
    stop = start + 1
    while (
        stop + 1 < len(tokens)
        and tokens[stop].text == ","
        and tokens[stop + 1].kind is TokenKind.NUMBER
        and not tokens[stop].is_spaced
        and not tokens[stop + 1].is_spaced
    ):
        stop += 2
    return stop


def _is_grouped(pieces: list[str]) -> bool:
    first, *middle, last = pieces
    whole, _, _ = last.partition(".")
    return (
        first.isdigit()
        and 1 <= len(first) <= 3
        and first[0] != "0"
        and all(piece.isdigit() and len(piece) == 3 for piece in (*middle, whole))
    )
