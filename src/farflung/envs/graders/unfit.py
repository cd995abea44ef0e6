r"""Which texts the second opinion on mathematics is not asked about, because it is known to misread them.

    rule                 what math-verify 0.9 makes of it
    words                a text is a product of its letters, a unit is dropped: 5 cm = 5 m, 10:30 a.m. = p.m.
    percent              50 % = 50
    degrees              the sign is dropped: sin 30 degrees = sin 30
    currency             the sign is dropped: $20 = 20 cents
    dots                 what dots stand for is dropped: 1,2,3 = 1,2,3,...
    base                 the index of a numeral is dropped: 1011_2 = 1011_3
    ratio                a colon is a quotient, a time is one too
    spaced_digits        `5 5` is one number
    short_fraction       \frac112 is 1/12; typeset it is 1/1 and a 2
    unbalanced, cut_off  what is left of a text is read: 5-- = 5
    foreign_character    is dropped
    too_many_variables   more than the points at which a "yes" is confirmed have coordinates

The exact rules come first and decide most of these; here their verdict was open and stays the safe one. Pure.
"""

import re

_CONNECTIVES = r"\\(?:text|mathrm|textrm|mbox)\{\s*(?:and|or)\s*\}|\b(?:and|or)\b"
_COMMAND = re.compile(r"\\[A-Za-z]+")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[bpvBV]?(?:matrix|array)\}(?:\{[lcr|]*\})?")
_FUNCTION_NAMES = re.compile(
    r"(?:sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|pi|arcsin|arccos|arctan|sinh|cosh|tanh)(?![a-z])"
)
_TEXT_COMMANDS = re.compile(r"\\(?:text\w*|mathrm|mathbf|mathit|mathsf|mathtt|mbox|operatorname|unit|SI)\b")

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("percent", re.compile("%")),
    ("degrees", re.compile(r"°|\\circ|\\degree")),
    ("currency", re.compile(r"[$€£¥]")),
    ("dots", re.compile(r"\\[lcdv]?dots[bcimo]?\b|\.\.|…")),
    ("base", re.compile(r"[0-9]\s*_")),
    ("ratio", re.compile(":")),
    ("short_fraction", re.compile(r"frac\s*[0-9]{3}")),
    ("spaced_digits", re.compile(r"[0-9]\s+[0-9]")),
    ("cut_off", re.compile(r"(?:[-+*/^_=<>,]|\\cdot|\\times|\\frac|\\sqrt)\s*$|^\s*[*/^_=,!]")),
    ("foreign_character", re.compile(r"[^A-Za-z0-9\s\\{}()\[\]+\-*/^_=<>|!,.&']|__")),
)
_MAX_VARIABLES = 4


def unfit(gold: str, answer: str) -> str | None:
    """The rule by which this pair is not asked about; None = it may be asked about."""
    return _unfit(gold) or _unfit(answer)


def _unfit(text: str) -> str | None:
    plain = re.sub(_CONNECTIVES, ",", text)
    if not _is_balanced(plain):
        return "unbalanced"
    for rule, pattern in _PATTERNS:
        if pattern.search(plain):
            return rule
    if _TEXT_COMMANDS.search(plain):
        return "words"
    letters = _FUNCTION_NAMES.sub(" ", _COMMAND.sub(" ", _ENVIRONMENT.sub(" ", plain)))
    if re.search(r"[A-Za-z]{4,}", letters):
        return "words"
    return "too_many_variables" if len(set(re.findall("[A-Za-z]", letters))) > _MAX_VARIABLES else None


def _is_balanced(text: str) -> bool:
    """Braces; an escaped one is a sign like any other."""
    depth = 0
    for brace in re.findall(r"\\[\\{}]|[{}]", text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0
