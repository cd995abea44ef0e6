r"""One spelling for what Unicode, LaTeX and plain text write in many ways, before tokens are made.

    ½ -> \frac{1}{2}    x² -> x^{2}    √2 -> \sqrt{2}    − -> -    \left( -> (    \dfrac -> \frac    $...$ -> ...

Every pass is linear in the text. This module knows no grammar; it may leave a text that does not parse.
"""

import re
import unicodedata

_GREEK_LETTERS = {
    "\u03b1": "alpha",
    "\u03b2": "beta",
    "\u03b3": "gamma",
    "\u03b4": "delta",
    "\u03b5": "epsilon",
    "\u03b8": "theta",
    "\u03bb": "lambda",
    "\u03bc": "mu",
    "\u03c0": "pi",
    "\u03c1": "rho",
    "\u03c3": "sigma",
    "\u03c4": "tau",
    "\u03c6": "phi",
    "\u03c8": "psi",
    "\u03c9": "omega",
    "\u0394": "Delta",
}
_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2010\u2011\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00d7\u2715\u2a2f", r"\times "),
        **dict.fromkeys("\u00b7\u22c5\u2219\u2022", r"\cdot "),
        **dict.fromkeys("\u00a0\u2009\u202f", r"\,"),
        **dict.fromkeys("\u2002\u2003\u2005\u2006\u2007\u2008\u200a\u3000", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u2061\u2062", ""),
        **dict.fromkeys("\u2018\u2019\u2032", "'"),
        "\u2033": "''",
        **dict.fromkeys("\u201c\u201d", '"'),
        "\uff5b": r"\{",
        "\uff5d": r"\}",
        "\u00f7": "/",
        "\u2215": "/",
        "\u2044": "/",
        "\u2261": r"\equiv ",
        "\u2264": r"\le ",
        "\u2a7d": r"\le ",
        "\u2265": r"\ge ",
        "\u2a7e": r"\ge ",
        "\u2260": r"\ne ",
        "\u2248": r"\approx ",
        "\u221e": r"\infty ",
        "\u00b1": r"\pm ",
        "\u2213": r"\mp ",
        "\u222a": r"\cup ",
        "\u2229": r"\cap ",
        "\u2216": r"\setminus ",
        "\u2205": r"\emptyset ",
        "\u2208": r"\in ",
        "\u211d": r"\mathbb{R} ",
        "\u2124": r"\mathbb{Z} ",
        "\u2026": r"\ldots ",
        "\u22ef": r"\ldots ",
        "\u00b0": r"^{\circ}",
        "\u00ba": r"^{\circ}",
        "\u20ac": r"\euro ",
        "\u00a3": r"\pounds ",
        "\u27e8": r"\langle ",
        "\u27e9": r"\rangle ",
        **{letter: rf"\{name} " for letter, name in _GREEK_LETTERS.items()},
    }
)


def _raised_or_lowered(kind: str) -> dict[str, str]:
    """Characters that Unicode writes above or below the line -> those that they are there."""
    found = {}
    for character in map(chr, range(0xA0, 0xAB70)):
        tag, _, base = unicodedata.decomposition(character).partition(" ")
        if tag == kind and character not in "ªº" and " " not in base:  # 5º is degrees
            found[character] = unicodedata.normalize("NFKC", chr(int(base, 16))).replace("\u2212", "-")
    return found


_SUPERSCRIPTS, _SUBSCRIPTS = _raised_or_lowered("<super>"), _raised_or_lowered("<sub>")
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_SUBSCRIPT_RUN = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_RAISED, _LOWERED = str.maketrans(_SUPERSCRIPTS), str.maketrans(_SUBSCRIPTS)
_ROOT_SIGN = re.compile(r"√\s*([0-9.]+|[A-Za-z])")
_RANGE = re.compile(r"(?<=[0-9])\u2013(?=[0-9])")
_VULGAR_FRACTION = re.compile("[¼½¾⅐-⅞]")

_SPACED = re.compile(r"(?<!\\)\\(?:quad|qquad|;|:|>| |thinspace)|~")
_NEGATIVE_SPACE = re.compile(r"(?<!,)\\!")
_SIZING = re.compile(
    r"\\(?:left|right|middle|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg"
    r"|displaystyle|textstyle|limits)(?![A-Za-z])\.?"
)
_ALIASES = {
    "dfrac": "frac",
    "tfrac": "frac",
    "cfrac": "frac",
    "dbinom": "binom",
    "tbinom": "binom",
    "leq": "le",
    "leqslant": "le",
    "geq": "ge",
    "geqslant": "ge",
    "neq": "ne",
    "lt": "<",
    "gt": ">",
    "dots": "ldots",
    "cdots": "ldots",
    "dotsc": "ldots",
    "dotsb": "ldots",
    "varnothing": "emptyset",
    "backslash": "setminus",
    "degree": "^{\\circ}",
    "lbrace": "{",
    "rbrace": "}",
    "lbrack": "[",
    "rbrack": "]",
    "lvert": "|",
    "rvert": "|",
    "vert": "|",
    "colon": ":",
    "div": "/",
    "ast": "*",
    "varphi": "phi",
    "varepsilon": "epsilon",
    "dotsm": "ldots",
    "leftarrow": "gets",
    "lor": "vee",
    "land": "wedge",
}
_ALIAS = re.compile(r"\\(" + "|".join(sorted(_ALIASES, key=len, reverse=True)) + r")(?![A-Za-z])")
_PRIMES = re.compile(r"\^\s*(?:((?:\\prime\s*)+)(?![A-Za-z])|\{\s*((?:\\prime\s*)+)\})")
_ORDINAL = re.compile(
    r"(?<=[0-9])\s*\^\s*(?:(st|nd|rd|th)(?![A-Za-z])|\{\s*(st|nd|rd|th)\s*\}"
    r"|\\(?:text|mathrm|textrm)\{(st|nd|rd|th)\}|\{\s*\\(?:text|mathrm|textrm)\{(st|nd|rd|th)\}\s*\})"
)
_CLOCK = re.compile(
    r"(?<=[0-9])(?:\s|\\[,!])*"
    r"(?:\\(?:text|mathrm|textrm|mbox)\{\s*([AaPp])\.?\s?[Mm]\.?\s*\}|([AaPp])\.?\s?[Mm]\.?)$"
)
_MODULO = re.compile(r"\(\s*(?:\\(?:bmod|mod)(?![A-Za-z])|\\(?:text|mathrm|operatorname)\{\s*mod\s*\}|mod\b)([^()]*)\)")
_SYSTEM = re.compile(
    r"(?:\\\{\s*)?\\begin\{(cases|aligned|gathered|split|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}", re.DOTALL
)
_ROW_SPACE = re.compile(r"(\\\\)\s*\[\s*-?[0-9.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]")
"""Room below a row, `[4pt]` after the two backslashes that end it."""
_FRAMED = re.compile(
    r"[\[(]\s*(\\begin\{(array|matrix|smallmatrix)\}(?:(?!\\begin\{).)*?\\end\{\2\})\s*[\])]", re.DOTALL
)
"""Brackets round a matrix that has none of its own."""
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_TIMES_TEN = re.compile(r"(?<=[0-9])\s*[xX]\s*(?=10\s*\^)")


def normalize(text: str) -> str:
    """`text` in the spelling that the tokenizer knows, without outer math delimiters and closing punctuation."""
    text = _without_delimiters(text)
    if not text.isascii():
        text = _ascii_forms(text)
    if "\\" in text:
        text = _SIZING.sub(" ", text)
        text = _ALIAS.sub(_alias, text)
        text = _SPACED.sub(" ", text)
        text = _NEGATIVE_SPACE.sub("", text)
        if "prime" in text:
            text = _PRIMES.sub(lambda match: "'" * (match[1] or match[2]).count("prime"), text)
    elif "~" in text:
        text = text.replace("~", " ")
    if "mod" in text:
        text = _MODULO.sub(r"\\pmod{\1}", text)
    if "begin" in text:
        text = _FRAMED.sub(r"\1", _ROW_SPACE.sub(r"\1", text))
        text = _system_as_list(text)
    if "^" in text:
        text = _ORDINAL.sub(lambda match: "".join(filter(None, match.groups())), text)
    text = _CLOCK.sub(lambda match: rf" \text{{{(match[1] or match[2]).lower()}m}}", text)
    return _TIMES_TEN.sub(r"\\times ", text).strip()


def _system_as_list(text: str) -> str:
    """Equations one below the other as a list; a text with other rows, such as the cases of a function, as it is."""
    match = _SYSTEM.fullmatch(text.strip())
    if match is None:
        return text
    rows = [row.strip().rstrip(",;") for row in match[2].split(r"\\") if row.strip()]
    bare = [re.sub(r"&\s*=|=\s*&", "=", row) for row in rows]
    return ", ".join(bare) if all("=" in row and "&" not in row for row in bare) else text


def has_balanced_braces(text: str) -> bool:
    r"""Whether every brace that groups is closed, and in order; `\{` and `\}` do not count."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text, re.DOTALL):
        if brace == "{":
            depth += 1
        elif brace == "}":
            depth -= 1
            if depth < 0:
                return False
    return depth == 0


def _alias(match: re.Match[str]) -> str:
    target = _ALIASES[match[1]]
    if target in "{}":
        return "\\" + target
    return f"\\{target} " if target.isalpha() else target


def _ascii_forms(text: str) -> str:
    text = _SUPERSCRIPT_RUN.sub(lambda match: "^{" + match[0].translate(_RAISED) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda match: "_{" + match[0].translate(_LOWERED) + "}", text)
    text = _VULGAR_FRACTION.sub(_fraction, text)
    text = _RANGE.sub("\u2014", text)  # 5 to 7 is no difference
    text = text.translate(_CHARACTERS)
    text = unicodedata.normalize("NFKC", text)
    return _ROOT_SIGN.sub(r"\\sqrt{\1}", text).replace("√", r"\sqrt ")


def _fraction(match: re.Match[str]) -> str:
    numerator, _, denominator = unicodedata.normalize("NFKC", match[0]).partition("\u2044")
    return rf"\frac{{{numerator}}}{{{denominator}}}" if denominator else match[0]


def _without_delimiters(text: str) -> str:
    text = text.strip()
    if text.startswith("**") and text.endswith("**"):  # bold in Markdown
        text = text.strip("*")
    while text.endswith("\\"):
        text = text[:-1].rstrip()
    changed = True
    while changed:
        changed = False
        if text.endswith((",", ";", ":")) or (text.endswith(".") and not text.endswith("..")):
            is_number = len(text) > 1 and text[-2].isdigit() and text[-1] == "."
            text = text[:-1].rstrip()
            changed = not is_number
        for opening, closing in _DELIMITERS:
            inner = text[len(opening) : len(text) - len(closing)]
            if (
                len(text) >= len(opening) + len(closing)
                and text.startswith(opening)
                and text.endswith(closing)
                and not text.endswith("\\" + closing)
                and opening not in inner
            ):
                text = inner.strip()
                changed = True
                break
    return _inner_dollars(text)


def _inner_dollars(text: str) -> str:
    r"""Math signs inside a sentence are dropped, in pairs; one before a number that is left alone is a currency."""
    count = text.count("$") - text.count(r"\$")
    if count <= 0:
        return text
    if count % 2 == 0:
        return re.sub(r"(?<!\\)\$", " ", text)
    return re.sub(r"(?<!\\)\$(?=\s*[0-9.])", r"\\$", text, count=1)
