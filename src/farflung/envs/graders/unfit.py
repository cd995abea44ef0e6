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
    unknown_command      what it does to the rest is dropped: \nabla\times F = \nabla F
    prime                is dropped: f'(2) = f(2), 5' = 5
    double_factorial     is the factorial of one: 5!! = (5!)!
    derivative           an order is a power, d a letter: f^{(2)}(x) = f(x)^2
    transpose            is dropped: A^T = A
    adjacent_capitals    are a product: the angle ABC = the angle ACB
    letter_case          capitals are small letters: sin A = sin a
    call                 a function is a factor: f(-x) = -f(x), P(A+B) = P(A) + P(B)
    inverse              f^{-1}(x) = 1/f(x)
    slash_after_function sin x/2 = sin(x/2)
    infinity             is a number: oo + 1 = oo, 1/oo = 0
    ordinal              5th is 5
    cross_product        A x B = B x A
    digit_after_letter   is a factor, in whichever place: x 2 y = 2xy
    identity             claims something: x = x is x
    brackets             round one item are dropped: [x] = x
    date                 is arithmetic: 2024-01-02 = 2021
    literal              0x10 = 0 * x * 10
    too_many_variables   more than the points at which a "yes" is confirmed have coordinates

The exact rules come first and decide most of these; here their verdict was open and stays the safe one. Pure.
"""

import re

from farflung.rewards.math.word_lists import GREEK

_CONNECTIVES = r"\\(?:text|mathrm|textrm|mbox)\{\s*(?:and|or)\s*\}|\b(?:and|or)\b"
_COMMAND = re.compile(r"\\[A-Za-z]+")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[bpvBV]?(?:matrix|array)\}(?:\{[lcr|]*\})?")
_FUNCTION_NAMES = re.compile(
    r"(?:sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|pi|arcsin|arccos|arctan|sinh|cosh|tanh)(?![a-z])"
)
_COMMANDS_WITH_A_MEANING = (
    "frac dfrac tfrac sqrt binom sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp pi varphi "
    "varepsilon vartheta cdot times div pm mp infty le ge leq geq lt gt ne neq in cup cap setminus emptyset left right "
    "begin end sum prod int lim to lfloor rfloor lceil rceil mathbb max min "
    "text textbf textit textrm textsf texttt textnormal mathrm mathbf mathit mathsf mathtt mbox operatorname"
)
_KNOWN_COMMANDS = GREEK | frozenset(_COMMANDS_WITH_A_MEANING.split())
_CALLED = re.compile(r"([A-Za-z])\s*[(\[]")
_BARE = re.compile(r"([A-Za-z])(?!\s*[(\[])")
_PLACED_INFINITY = re.compile(
    r"(?:^|[(\[,<>=]|\\(?:le|ge|in|to)(?![A-Za-z]))\s*[+-]?\s*\\infty\s*(?=$|[)\],<>=}]|\\(?:le|ge)(?![A-Za-z]))"
    r"|_(?:\{[^{}]*\}|[A-Za-z0-9])\s*\^(?:\{\s*[+-]?\s*\\infty\s*\}|\\infty(?![A-Za-z]))"
)
"""As an end of an interval, alone, or the upper end of a sum."""
_TEXT_COMMANDS = re.compile(r"\\(?:text\w*|mathrm|mathbf|mathit|mathsf|mathtt|mbox|operatorname|unit|SI)\b")

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("percent", re.compile("%")),
    ("degrees", re.compile(r"°|\\circ|\\degree")),
    ("currency", re.compile(r"[$€£¥]")),
    ("dots", re.compile(r"\\[lcdv]?dots[bcimo]?\b|\.\.|…")),
    ("base", re.compile(r"[0-9]\s*_")),
    ("ratio", re.compile(":")),
    ("short_fraction", re.compile(r"frac\s*[0-9]{3}")),
    ("spaced_digits", re.compile(r"(?<![0-9^_])[0-9]+\s+[0-9]|[\^_][0-9]{2,}\s+[0-9]")),
    ("cut_off", re.compile(r"(?:[-+*/^_=<>,]|\\cdot|\\times|\\frac|\\sqrt)\s*$|^\s*[*/^_=,!]")),
    ("prime", re.compile(r"['\u2032]|\\prime")),
    ("double_factorial", re.compile(r"!\s*!")),
    ("derivative", re.compile(r"\^\s*\{?\s*\(|\\frac\s*\{\s*d[^{}]*\}\s*\{\s*d\s*[A-Za-z]")),
    ("transpose", re.compile(r"\^\s*\{?\s*(?:T(?![A-Za-z])|\\top|[*+])")),
    (
        "slash_after_function",
        re.compile(
            r"(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sinh|cosh|tanh)(?![a-z])"
            r"\s*(?:[\^_]\s*(?:\{[^{}]*\}|[A-Za-z0-9]))*\s*[A-Za-z0-9\\][^()+\-=,{}]*/"
        ),
    ),
    ("ordinal", re.compile(r"[0-9](?:st|nd|rd|th)(?![A-Za-z])")),
    ("cross_product", re.compile(r"[A-Z]\s*\\times\s*[A-Z]")),
    ("identity", re.compile(r"^\s*(.+?)\s*=\s*\1\s*$")),
    ("brackets", re.compile(r"^\s*\[[^,;\]]*\]\s*$")),
    ("date", re.compile(r"[0-9]-[0-9]{2}-[0-9]{2}(?![0-9])|[0-9]/[0-9]{1,2}/[0-9]{4}(?![0-9])")),
    ("literal", re.compile(r"(?<![0-9.])0[xXbBoO][0-9]")),
    ("foreign_character", re.compile(r"[^A-Za-z0-9\s\\{}()\[\]+\-*/^_=<>|!,.&']|__")),
)
_MAX_VARIABLES = 4


def unfit(gold: str, answer: str) -> str | None:
    """The rule by which this pair is not asked about; None = it may be asked about."""
    return _unfit(gold) or _unfit(answer) or _unfit_together(gold, answer)


def _unfit(text: str) -> str | None:
    plain = re.sub(_CONNECTIVES, ",", text)
    if not _is_balanced(plain):
        return "unbalanced"
    for rule, pattern in _PATTERNS:
        if pattern.search(plain):
            return rule
    if _TEXT_COMMANDS.search(plain):
        return "words"
    if plain.count(r"\infty") != len(_PLACED_INFINITY.findall(plain)):
        return "infinity"
    if any(command[1:] not in _KNOWN_COMMANDS for command in _COMMAND.findall(plain)):
        return "unknown_command"
    letters = _letters(plain)
    if re.search(r"[A-Za-z]{4,}", letters):
        return "words"
    if re.search(r"[A-Za-z]\s*[0-9]", letters):
        return "digit_after_letter"
    if re.search(r"[A-Za-z]\s*\^\s*\{\s*-\s*1\s*\}\s*\(", letters):
        return "inverse"
    if re.search(r"[A-Z]{2}", letters):
        return "adjacent_capitals"
    return "too_many_variables" if len(set(re.findall("[A-Za-z]", letters))) > _MAX_VARIABLES else None


def _unfit_together(gold: str, answer: str) -> str | None:
    """What shows only in both texts."""
    both = re.sub(_CONNECTIVES, ",", f"{gold} , {answer}")
    letters = _letters(both)
    names = set(re.findall("[A-Za-z]", letters)) | {command[1:] for command in _COMMAND.findall(both)} & GREEK
    if len({name.lower() for name in names}) < len(names):
        return "letter_case"
    return "call" if set(_CALLED.findall(letters)) - set(_BARE.findall(letters)) else None


def _letters(text: str) -> str:
    """`text` with a bar for each command and each name of a function."""
    return _FUNCTION_NAMES.sub("|", _COMMAND.sub("|", _ENVIRONMENT.sub("|", text)))


def _is_balanced(text: str) -> bool:
    """Braces; an escaped one is a sign like any other."""
    depth = 0
    for brace in re.findall(r"\\[\\{}]|[{}]", text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0
