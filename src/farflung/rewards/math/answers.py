r"""Grammar of a whole answer: tokens -> tree.

    answer    relation (( , | ; | and | or ) relation)*
    relation  sets (( = | < | \le | \in | ... ) sets)*
    sets      quantity (( \cup | \cap | \setminus ) quantity)*
    quantity  sum [ unit ] | sum : sum | { items } | { x | relation }

Arithmetic is `expressions`. A text of words only is one text answer. This module computes nothing.
"""

from farflung.rewards.math.cursor import Cursor
from farflung.rewards.math.expressions import parse_argument, parse_call, parse_quantity, parse_sum
from farflung.rewards.math.limits import MAX_ITEMS, CutShort, NotExact, OverLimits
from farflung.rewards.math.spelling import normalize
from farflung.rewards.math.syntax import (
    Builder,
    Congruent,
    Group,
    Listing,
    Name,
    Node,
    Ratio,
    Relation,
    SetOperation,
    Words,
)
from farflung.rewards.math.tokens import Token, TokenKind, tokenize
from farflung.rewards.math.word_lists import MOMENT_MARKS

_SIGNS = {
    "=": "=",
    "equiv": "=",
    "<": "<",
    ">": ">",
    "<=": "<=",
    "le": "<=",
    ">=": ">=",
    "ge": ">=",
    "!=": "!=",
    "ne": "!=",
    "in": "in",
    "approx": "~",
    "sim": "~",
}
_SET_OPERATIONS = {"cup": "union", "cap": "intersection", "setminus": "difference"}
_SEPARATORS = (",", ";", "and", "or", "vee", "wedge")
_SEPARATOR_NAMES = {"vee": "or", "wedge": "and", ";": ","}
_MODULO = ("pmod", "mod", "bmod")
_WORD_MARKS = frozenset(("-", "'", ".", ",", '"', "and", "or", "in", "(", ")", "!", "?", "/"))


def parse_answer(text: str) -> Node:
    """The tree of an answer; raises NotExact where the grammar does not know it, OverLimits."""
    tokens = tokenize(normalize(text))
    if not tokens:
        raise CutShort("nothing there")
    if _is_words(tokens) or _is_moment(tokens):
        return Words(_joined(tokens))
    cursor = Cursor(_with_set_braces(tokens))
    node = _listing(cursor)
    if cursor.peek().kind is not TokenKind.END:
        raise NotExact(f"unexpected {cursor.peek().text[:20]}")
    return node


def _is_words(tokens: list[Token]) -> bool:
    """Whether all of it is words, at least one of them longer than a letter."""
    has_word = False
    for token in tokens:
        if token.kind is TokenKind.WORD:
            has_word = True
        elif token.kind is TokenKind.NAME:
            if not (token.is_text or len(token.text) == 1):
                return False
        elif token.text not in _WORD_MARKS:
            return False
    return has_word


def _is_moment(tokens: list[Token]) -> bool:
    """A date, a time of day before or after noon, an ordinal: equal to the same text alone."""
    if len(tokens) == 1:
        return tokens[0].kind is TokenKind.COMMAND and tokens[0].text[:1].isdigit() and "x" not in tokens[0].text
    is_marked = tokens[-1].kind is TokenKind.WORD and tokens[-1].text in MOMENT_MARKS
    return is_marked and all(token.kind is TokenKind.NUMBER or token.text == ":" for token in tokens[:-1])


def _with_set_braces(tokens: list[Token]) -> list[Token]:
    r"""Plain braces round the whole text with a comma in them are those of a set: `{1, 2}`."""
    if tokens[0].text != "{" or tokens[-1].text != "}":
        return tokens
    depth = 0
    has_comma = False
    for index, token in enumerate(tokens):
        depth += (token.text == "{") - (token.text == "}")
        has_comma |= depth == 1 and token.text == ","
        if depth == 0 and index < len(tokens) - 1:
            return tokens
    if not has_comma:
        return tokens
    return [tokens[0]._replace(text=r"\{"), *tokens[1:-1], tokens[-1]._replace(text=r"\}")]


def _joined(tokens: list[Token]) -> str:
    text = "".join((" " if token.is_spaced else "") + token.text for token in tokens)
    return " ".join(text.split())


def _listing(cursor: Cursor) -> Node:
    items = [_relation(cursor)]
    separators = set()
    is_logical = False
    while cursor.at(*_SEPARATORS):
        separator = cursor.advance().text
        if separator == "," and cursor.at("and", "or"):
            separator = cursor.advance().text
        is_logical |= separator in ("vee", "wedge")
        separators.add(_SEPARATOR_NAMES.get(separator, separator))
        if len(items) > MAX_ITEMS:
            raise OverLimits("too many items")
        items.append(_relation(cursor))
    if len(items) == 1:
        return items[0]
    if is_logical and not all(isinstance(item, Relation) for item in items):
        raise NotExact("a formula of logic")
    strong = separators - {","}
    return Listing(tuple(items), strong.pop() if len(strong) == 1 else ",")


def _relation(cursor: Cursor) -> Node:
    terms = [parse_call(cursor) if _is_function_value(cursor) else _sets(cursor)]
    signs = []
    while (sign := cursor.peek().text) in _SIGNS and cursor.at(sign):
        cursor.advance()
        signs.append(_SIGNS[sign])
        terms.append(_sets(cursor))
    if signs and cursor.at(*_MODULO):
        return Congruent(Relation(tuple(terms), tuple(signs)), _modulus(cursor))
    return Relation(tuple(terms), tuple(signs)) if signs else terms[0]


def _modulus(cursor: Cursor) -> Node:
    r"""What stands after `\pmod`."""
    cursor.advance()
    return parse_argument(cursor)


def _is_function_value(cursor: Cursor) -> bool:
    """Whether `y(0) =` comes next: one letter, then numbers or other letters in brackets, then the sign."""
    name = cursor.peek()
    if name.kind is not TokenKind.NAME or cursor.peek(1).text != "(":
        return False
    ahead = 2
    while cursor.peek(ahead).text in (",", "-") or (
        cursor.peek(ahead).kind in (TokenKind.NUMBER, TokenKind.NAME) and cursor.peek(ahead).text != name.text
    ):
        ahead += 1
    return cursor.peek(ahead).text == ")" and cursor.peek(ahead + 1).text == "=" and ahead > 2


def _sets(cursor: Cursor) -> Node:
    node = _quantity(cursor)
    depth = 0
    while True:
        if cursor.at(*_SET_OPERATIONS):
            operation = _SET_OPERATIONS[cursor.advance().text]
        elif (
            isinstance(node, Group | SetOperation) and cursor.peek().text in ("U", "u") and cursor.peek(1).text in "(["
        ):
            cursor.advance()
            operation = "union"
        else:
            return node
        depth += 1
        cursor.check_depth(depth)
        node = SetOperation(operation, node, _quantity(cursor))


def _quantity(cursor: Cursor) -> Node:
    if cursor.at(r"\{"):
        return _set(cursor)
    start = cursor.peek()
    if start.kind is TokenKind.WORD:
        return Words(_words(cursor))
    value = parse_quantity(cursor)
    if not cursor.at(":"):
        return value
    terms = [value]
    while cursor.take(":"):
        terms.append(parse_sum(cursor))
    return Ratio(tuple(terms))


def _set(cursor: Cursor) -> Node:
    cursor.expect(r"\{")
    items: list[Node] = []
    with cursor.nested():
        if cursor.take(r"\}"):
            return Group(r"\{", (), r"\}")
        names_a_variable = cursor.peek().kind is TokenKind.NAME and cursor.peek(1).text == ":"  # else read as a ratio
        items.append(Name(cursor.advance().text) if names_a_variable else _relation(cursor))
        if cursor.take("|", "mid", ":"):
            condition = _listing(cursor)
            cursor.expect(r"\}")
            return Builder(items[0], condition)
        while cursor.take(",", ";"):
            if len(items) > MAX_ITEMS:
                raise OverLimits("too many items")
            items.append(_relation(cursor))
        cursor.expect(r"\}")
    return Group(r"\{", tuple(items), r"\}")


def _words(cursor: Cursor) -> str:
    found = []
    while cursor.peek().kind is TokenKind.WORD:
        found.append(cursor.advance().text)
    return " ".join(found)
