r"""Decimals as exact fractions, so that nothing is compared in floating point.

    0.5 -> \frac{5}{10}      12.30 -> \frac{1230}{100}      1,234.5 -> \frac{12345}{10}

A float would hold 0.12345678901234567 and ...68 as one number, and a library then rounds them to six places. Whole
numbers and everything else stay as they are. Pure; knows no library.
"""

import re

_DECIMAL = re.compile(
    r"(?<![\w.}])(?P<whole>[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+|[0-9]*)\.(?P<part>[0-9]+)(?![.0-9])", re.ASCII
)


def with_exact_decimals(latex: str) -> str:
    """`latex` with each decimal number written as a fraction."""
    return _DECIMAL.sub(_fraction, latex)


def _fraction(match: re.Match[str]) -> str:
    digits = re.sub("[^0-9]", "", match["whole"]) + match["part"]
    return rf"\frac{{{digits.lstrip('0') or '0'}}}{{1{'0' * len(match['part'])}}}"
