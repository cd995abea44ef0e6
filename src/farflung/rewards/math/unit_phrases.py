"""Grammar of units: the words after a number -> one canonical unit."""

from farflung.rewards.math.cursor import Cursor
from farflung.rewards.math.limits import NotExact
from farflung.rewards.math.syntax import Node, Number, Product, Quantity
from farflung.rewards.math.tokens import TokenKind
from farflung.rewards.math.units import (
    MAX_UNIT_WORDS,
    MULTIPLIERS,
    canonical_unit,
    canonical_word,
    is_unit_word,
    may_name_a_unit,
)


def with_unit(cursor: Cursor, value: Node) -> Node:
    """`value` with the unit at the cursor, if there is one; `5 million` is a product."""
    if cursor.peek().kind is TokenKind.WORD and cursor.peek().text.lower() in MULTIPLIERS:
        multiplier = Number(MULTIPLIERS[cursor.advance().text.lower()])
        inner = value.value if isinstance(value, Quantity) else value
        product = Product((inner, multiplier))
        value = Quantity(product, value.unit) if isinstance(value, Quantity) else product
    unit = _unit(cursor)
    if unit == "":
        return value
    if not isinstance(value, Quantity):
        return Quantity(value, unit)
    if value.unit != unit:
        raise NotExact("two units")
    return value


def degree_unit(cursor: Cursor) -> str:
    """The unit after a degree sign: of an angle, or of temperature where a C or F comes last."""
    token = cursor.peek()
    if token.kind is TokenKind.NAME and token.text in ("C", "F") and cursor.peek(1).kind is TokenKind.END:
        return "deg" + cursor.advance().text
    return "deg"


def _unit(cursor: Cursor) -> str:
    """The unit at the cursor in canonical spelling, "" if there is none; raises NotExact for other words there."""
    powers: dict[str, int] = {}
    direction = 1
    dimension = 1
    num_words = 0
    while _starts_unit(cursor, is_divisor=direction < 0):
        word = cursor.advance().text
        num_words += 1
        if num_words > MAX_UNIT_WORDS + 1:
            raise NotExact("too many words for a unit")
        if word.lower() == "per" and cursor.peek().text.lower() == "cent":
            cursor.advance()
            return "%"
        if word.lower() == "per":
            direction = -1
            continue
        if word.lower() in ("square", "cubic", "sq", "cu"):
            dimension = 2 if word.lower() in ("square", "sq") else 3
            continue
        if not may_name_a_unit(word):
            raise NotExact("a word that names no unit")
        name = canonical_word(word)
        powers[name] = powers.get(name, 0) + direction * dimension * _unit_exponent(cursor)
        dimension = 1
        if is_unit_word(word):
            cursor.take(".")  # 5 in.
        if cursor.take("/"):
            direction = -1
        else:
            cursor.take("*", "cdot")
    return canonical_unit(powers)


def _starts_unit(cursor: Cursor, *, is_divisor: bool) -> bool:
    """Whether a word of a unit comes next; a plain letter is one only after the slash of `km/h`."""
    token = cursor.peek()
    if token.kind is TokenKind.WORD:
        return True
    if cursor.at("in"):  # inches, where nothing follows that one could be in
        return cursor.peek(1).kind is TokenKind.END or cursor.peek(1).text in ("^", ".")
    return token.kind is TokenKind.NAME and (token.is_text or is_divisor) and is_unit_word(token.text)


def _unit_exponent(cursor: Cursor) -> int:
    if not cursor.take("^"):
        return 1
    is_braced = cursor.take("{")
    sign = -1 if cursor.take("-") else 1
    token = cursor.advance()
    if token.kind is not TokenKind.NUMBER or token.text not in ("1", "2", "3", "4"):
        raise NotExact("a power of a unit")
    if is_braced:
        cursor.expect("}")
    return sign * int(token.text)
