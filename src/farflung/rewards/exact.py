r"""Exact equality of an answer with its reference.

    grade_text     the same characters, after Unicode composition (NFC) and without outer white space
    grade_integer  the same integer of any size: sign, leading zeros and thousands separators do not matter

Each returns 1.0, 0.0, or None when the reference itself breaks the rule, and 0.0 for an empty answer whatever the
reference. Integers are compared as digit strings: a float would take 12345678901234567890 and ...891 for equal, and
`int()` of a foreign million-digit text would cost seconds. This module does not look for the answer inside a text.
"""

import re
import unicodedata

MINUS_SIGNS = "-\u2212\u2013\ufe63\uff0d"
"""Hyphen-minus, minus sign, en dash, small and full-width hyphen-minus: what models write before a number."""

THOUSANDS_SEPARATORS = (",", "{,}", r"\,", "\u00a0", "\u2009", "\u202f")
r"""Comma, LaTeX `{,}` and `\,`, and the no-break, thin and narrow spaces. A plain space separates numbers instead."""

_SEPARATOR = "|".join(re.escape(separator) for separator in THOUSANDS_SEPARATORS)
_INTEGER = re.compile(
    rf"""
    (?P<sign>[+{re.escape(MINUS_SIGNS)}]?)
    (?P<digits>
        [0-9]+
      | [0-9]{{1,3}} (?P<separator>{_SEPARATOR}) [0-9]{{3}} (?: (?P=separator) [0-9]{{3}} )*
    )""",
    re.VERBOSE,
)
_NOT_A_DIGIT = re.compile("[^0-9]")


def grade_text(reference: str, answer: str) -> float | None:
    """1.0 if both are the same text, else 0.0; None if the reference is blank."""
    expected = _composed(reference)
    if not expected:
        return None
    return float(_composed(answer) == expected)


def grade_integer(reference: str, answer: str) -> float | None:
    """1.0 if both are the same integer, else 0.0; None if the reference is not an integer."""
    expected = canonical_integer(reference)
    if expected is None:
        return None
    return float(canonical_integer(answer) == expected)


def canonical_integer(text: str) -> str | None:
    r"""`text` as minus sign and digits without leading zeros, "0" for every zero; None if it is not one integer.

    "+007" -> "7", "\u2212 1" -> None, "10{,}000" -> "10000", "1,23" -> None, "(1,234)" -> None, "18.00" -> None.
    """
    match = _INTEGER.fullmatch(text.strip())
    if match is None:
        return None
    digits = _NOT_A_DIGIT.sub("", match["digits"]).lstrip("0")
    is_negative = match["sign"] != "" and match["sign"] in MINUS_SIGNS
    return f"-{digits}" if is_negative and digits else digits or "0"


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
