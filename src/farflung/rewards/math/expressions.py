r"""Grammar of arithmetic: tokens -> tree.

    sum      [+-\pm] product ([+-\pm] product)*
    product  power (( * | / | \cdot | nothing ) power)*
    power    primary ( ^ argument | _ argument | ! | % | ^\circ )*
    primary  number | name | ( items ) | \frac{}{} | \sqrt[]{} | function | |sum| | \begin{matrix}

`1/2x` is (1/2)x, since division goes from left to right; `1/xy` is refused as ambiguous. `2^10` takes the whole number,
as people write it, although LaTeX would take one digit. This module knows no relations, lists or units of lengths.
"""

from farflung.rewards.math.cursor import Cursor
from farflung.rewards.math.factors import has_order, is_differential, left_depth, mixed, mixed_of_quotient
from farflung.rewards.math.labels import canonical_label, label_of, parse_subscript
from farflung.rewards.math.limits import MAX_ITEMS, CutShort, NotExact, OverLimits
from farflung.rewards.math.matrices import parse_matrix
from farflung.rewards.math.syntax import (
    Call,
    Dots,
    Group,
    Name,
    Negative,
    Node,
    Number,
    PlusMinus,
    Power,
    Product,
    Quantity,
    Quotient,
    Sum,
)
from farflung.rewards.math.tokens import Token, TokenKind, number_value
from farflung.rewards.math.unit_phrases import degree_unit, with_unit

_CLOSING = {"(": (")", "]"), "[": ("]", ")"), "{": ("}",), r"\{": (r"\}",), "langle": ("rangle",)}
_TIMES = ("*", "cdot", "times")
_CURRENCIES = {r"\$": "$", "euro": "euro", "pounds": "pound sterling"}
_FUNCTION_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "binom": "binomial"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_NAMED_FUNCTIONS = ("f", "g", "h", "P", "p", "F", "G")
_ACCENTS = ("vec", "hat", "bar", "overline", "tilde", "overrightarrow", "widehat", "mathcal", "bm", "boldsymbol")
_PREFIX_COMMANDS = ("frac", "lfloor", "lceil", "langle", "begin", "ldots", "angle", "triangle", *_ACCENTS)


def parse_sum(cursor: Cursor) -> Node:
    """Terms up to the first token that belongs to none."""
    with cursor.nested():
        terms = [_term(cursor)]
        while cursor.at("+", "-", "pm", "mp"):
            terms.append(_term(cursor))
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def parse_quantity(cursor: Cursor) -> Node:
    """A sum and the unit after it, if there is one."""
    return with_unit(cursor, parse_sum(cursor))


def _term(cursor: Cursor) -> Node:
    """A product with the signs before it."""
    is_negative = False
    plus_minus: bool | None = None
    while cursor.at("+", "-", "pm", "mp"):
        sign = cursor.advance().text
        if sign == "-":
            is_negative = not is_negative
        elif sign != "+":
            if plus_minus is not None:
                raise NotExact("two plus-minus signs in a row")
            plus_minus = sign == "mp"
    node = _product(cursor)
    if is_negative and isinstance(node, Quantity):
        node = Quantity(Negative(node.value), node.unit)
    elif is_negative:
        node = Negative(node)
    return node if plus_minus is None else PlusMinus(node, is_flipped=plus_minus)


def _product(cursor: Cursor) -> Node:
    is_bracketed = cursor.at("(")
    factors = [_power(cursor)]
    has_symbolic_divisor = is_beside = False
    while True:
        if cursor.at(*_TIMES):
            is_beside = False
            is_cross = cursor.advance().text == "times"
            is_bracketed = cursor.at("(")
            factor = _signed_power(cursor)
            if is_cross and has_order(factors[-1]) and has_order(factor):
                factors[-1] = Call("cross", (factors[-1], factor))
            else:
                factors.append(factor)
            has_symbolic_divisor = False
        elif cursor.take("/"):
            divisor = _signed_power(cursor)
            dividend = factors[0] if len(factors) == 1 else Product(tuple(factors))
            whole_and_part = mixed_of_quotient(factors, divisor) if is_beside else None
            if is_beside and whole_and_part is None:
                raise NotExact("a fraction beside a factor")
            factors = [whole_and_part or Quotient(dividend, divisor)]
            cursor.check_depth(left_depth(factors[0]))
            has_symbolic_divisor = not isinstance(divisor, Number)
        elif _starts_factor(cursor):
            if has_symbolic_divisor:
                raise NotExact("ambiguous division")
            is_beside = cursor.peek().kind is TokenKind.NUMBER
            was_bracketed, is_bracketed = is_bracketed, cursor.at("(")
            factor = _power(cursor)
            mixed_number = None if was_bracketed or is_bracketed else mixed(factors[-1], factor)  # not 2(1/3)
            if mixed_number is not None:
                factors[-1] = mixed_number
            else:
                factors.append(factor)
        else:
            break
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def _starts_factor(cursor: Cursor) -> bool:
    """Whether the next token continues the product without an operator."""
    token = cursor.peek()
    if token.kind is TokenKind.NAME:
        return not token.is_text
    if token.kind is TokenKind.FUNCTION:
        return True
    if token.kind is TokenKind.NUMBER:
        return token.is_spaced and cursor.peek(1).text == "/"  # 1 1/2
    return cursor.at("(", "{", *_PREFIX_COMMANDS[:3], *_ACCENTS)


def _signed_power(cursor: Cursor) -> Node:
    is_negative = False
    while cursor.at("+", "-"):
        is_negative ^= cursor.advance().text == "-"
    node = _power(cursor)
    return Negative(node) if is_negative else node


def _power(cursor: Cursor) -> Node:
    node = _primary(cursor)
    depth = 0
    while True:
        if cursor.at("^"):
            if cursor.peek(1).text == "circ":
                cursor.advance()
                cursor.advance()
                node = Quantity(node, degree_unit(cursor))
            else:
                cursor.advance()
                node = _raised(cursor, node)
                node = _of_inverse(cursor, node)
        elif cursor.at("!"):
            cursor.advance()
            if cursor.at("!"):
                raise NotExact("a double factorial, or the factorial of one")
            node = Call("factorial", (node,))
        elif cursor.at("%"):
            cursor.advance()
            node = Quantity(node, "%")
        elif cursor.at(*_CURRENCIES) and cursor.peek(1).kind is TokenKind.END:
            node = Quantity(node, _CURRENCIES[cursor.advance().text])
        elif cursor.at("_"):
            cursor.advance()
            node = parse_subscript(cursor, node)
        elif cursor.at("'") and isinstance(node, Name):
            cursor.advance()
            node = Name(node.text + "'")
            if cursor.at("("):
                node = Call(node.text, _arguments(cursor))
        else:
            return node
        depth += 1
        cursor.check_depth(depth)


def _of_inverse(cursor: Cursor, node: Node) -> Node:
    """`f^{-1}(x)`, which is no reciprocal; any other power is itself."""
    match node:
        case Power(Name(text), Negative(Number(1))) if text in _NAMED_FUNCTIONS and cursor.at("("):
            return Call(f"{text}^-1", _arguments(cursor))
    return node


def _raised(cursor: Cursor, base: Node) -> Node:
    with cursor.nested():
        if cursor.at("-", "+"):
            return Power(base, _signed_power(cursor))
        if cursor.at("{"):
            exponent = _braced(cursor)
            if exponent is None:
                raise NotExact("empty exponent")
            if exponent == Name("circ"):
                return Quantity(base, degree_unit(cursor))
        elif cursor.peek().kind is TokenKind.NUMBER:
            exponent = Number(number_value(cursor.advance().text))
        else:
            exponent = _primary(cursor)
        if cursor.at("^"):  # a^b^c = a^(b^c)
            cursor.advance()
            exponent = _raised(cursor, exponent)
        return Power(base, exponent)


def _primary(cursor: Cursor) -> Node:
    token = cursor.peek()
    if token.kind is TokenKind.NUMBER:
        cursor.advance()
        return Number(number_value(token.text))
    if token.kind is TokenKind.NAME:
        cursor.advance()
        if token.text in _NAMED_FUNCTIONS and cursor.at("("):
            return Call(token.text, _arguments(cursor))
        return Name(token.text)
    if token.kind is TokenKind.FUNCTION:
        with cursor.nested():
            return _function(cursor)
    if token.kind is TokenKind.SYMBOL:
        return _bracketed(cursor, token)
    if token.kind is TokenKind.COMMAND:
        with cursor.nested():
            return _command(cursor, token.text)
    if token.kind is TokenKind.END:
        raise CutShort("the text ends too early")
    raise NotExact("a word in a formula")


def _bracketed(cursor: Cursor, token: Token) -> Node:
    if cursor.at("{"):
        inner = _braced(cursor)
        if inner is None:
            raise NotExact("empty braces")
        return inner
    if cursor.at("(", "[", r"\{"):
        return parse_group(cursor)
    if cursor.take("|"):
        inner = parse_sum(cursor)
        cursor.expect("|")
        return Call("abs", (inner,))
    if cursor.take("..."):
        return Dots()
    if cursor.take(r"\$"):
        return Quantity(_signed_power(cursor), "$")
    raise NotExact(f"unexpected {token.text}")


def _command(cursor: Cursor, text: str) -> Node:
    cursor.advance()
    if text == "frac":
        numerator = parse_argument(cursor)
        denominator = parse_argument(cursor)
        if is_differential(numerator) and is_differential(denominator):
            if Name("d") in (numerator, denominator):
                raise NotExact("a derivative of what follows")
            return Call("d", (numerator, denominator))  # opaque: what it is a derivative of is not known
        return Quotient(numerator, denominator)
    if text in ("lfloor", "lceil"):
        inner = parse_sum(cursor)
        cursor.expect("r" + text[1:])
        return Call({"lfloor": "floor", "lceil": "ceil"}[text], (inner,))
    if text == "langle":
        return _items(cursor, "langle")
    if text == "begin":
        return parse_matrix(cursor, parse_sum)
    if text == "ldots":
        return Dots()
    if text in ("circ", "emptyset"):
        return Name(text)
    if text in _CURRENCIES:
        return Quantity(_signed_power(cursor), _CURRENCIES[text])
    if text in ("angle", "triangle", *_ACCENTS):
        inner = Name(cursor.advance().text) if cursor.peek().kind is TokenKind.NAME else parse_argument(cursor)
        return Name(f"{text} {canonical_label(text, label_of(inner))}")
    raise NotExact(f"unknown command {text[:20]}")


def parse_call(cursor: Cursor) -> Node:
    """A name and its arguments in brackets, as a function."""
    return Call(cursor.advance().text, _arguments(cursor))


def _braced(cursor: Cursor) -> Node | None:
    r"""`{sum}` or `{a \over b}`; None for empty braces."""
    cursor.expect("{")
    if cursor.take("}"):
        return None
    with cursor.nested():
        node = parse_sum(cursor)
        if cursor.take("over"):
            node = Quotient(node, parse_sum(cursor))
        elif cursor.take("choose"):
            node = Call("binomial", (node, parse_sum(cursor)))
        cursor.expect("}")
    return node


def parse_argument(cursor: Cursor) -> Node:
    r"""Argument of `\frac` or `\sqrt`: braces, or one character or command."""
    token = cursor.peek()
    if token.kind is TokenKind.NUMBER:
        piece = cursor.split(1)
        return Number(number_value(piece.text))
    if cursor.at("{"):
        inner = _braced(cursor)
        if inner is None:
            raise NotExact("empty braces")
        return inner
    if token.kind is TokenKind.NAME and "_" in token.text:
        return Name(cursor.split_index().text)
    return _primary(cursor)


def _function(cursor: Cursor) -> Node:
    name = cursor.advance().text
    name = _FUNCTION_NAMES.get(name, name)
    if name == "binomial":
        upper = parse_argument(cursor)
        return Call(name, (upper, parse_argument(cursor)))
    if name == "sqrt":
        return _root(cursor)
    exponent: Node | None = None
    base: Node | None = None
    while cursor.at("^", "_"):
        if cursor.advance().text == "_":
            base = parse_argument(cursor)
        elif cursor.peek().kind is TokenKind.NUMBER:
            exponent = Number(number_value(cursor.advance().text))
        else:
            exponent = Negative(parse_argument(cursor)) if cursor.take("-") else parse_argument(cursor)
    arguments = _arguments(cursor)
    if exponent == Negative(Number(1)):
        if name not in _INVERSES:
            raise NotExact("an inverse function")
        return Call(_INVERSES[name], arguments)
    if base is not None:
        if name != "log" or len(arguments) != 1:
            raise NotExact("a subscript of a function")
        arguments = (base, *arguments)
    node: Node = Power(Name("e"), arguments[0]) if name == "exp" and len(arguments) == 1 else Call(name, arguments)
    return node if exponent is None else Power(node, exponent)


def _root(cursor: Cursor) -> Node:
    degree: Node | None = None
    if cursor.take("["):
        degree = parse_sum(cursor)
        cursor.expect("]")
    token = cursor.peek()
    if token.kind is TokenKind.NUMBER and len(token.text) > 1:
        raise NotExact("a root over an unclear number of digits")
    radicand = parse_argument(cursor)
    return Call("sqrt", (radicand,)) if degree is None else Power(radicand, Quotient(Number(1), degree))


def _arguments(cursor: Cursor) -> tuple[Node, ...]:
    """Arguments of a function: in brackets, or the product that follows, up to an operator or the next function."""
    if cursor.at("("):
        group = parse_group(cursor)
        return group.items if isinstance(group, Group) else (group,)
    factors = [_signed_power(cursor)]
    while _starts_factor(cursor) and not cursor.at("(") and cursor.peek().kind is not TokenKind.FUNCTION:
        factors.append(_power(cursor))
    if cursor.at("/"):
        raise NotExact("a division that may be inside of the function or outside")  # ln 2/2, sin pi/2
    return (factors[0] if len(factors) == 1 else Product(tuple(factors)),)


def parse_group(cursor: Cursor) -> Node:
    """Items between brackets; one item in round brackets is the item itself."""
    return _items(cursor, cursor.advance().text)


def _items(cursor: Cursor, opening: str) -> Node:
    closings = _CLOSING[opening]
    items: list[Node] = []
    with cursor.nested():
        while not cursor.at(*closings):
            items.append(parse_quantity(cursor))
            if len(items) > MAX_ITEMS:
                raise OverLimits("too many items")
            if not cursor.take(",", ";"):
                break
        closing = cursor.expect(*closings).text
    if len(items) == 1 and opening == "(" and closing == ")":
        return items[0]
    return Group(opening, tuple(items), closing)
