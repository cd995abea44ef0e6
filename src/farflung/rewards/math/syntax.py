"""The syntax tree of an answer: what was written, before anything is computed."""

from dataclasses import dataclass
from fractions import Fraction


class Node:
    """Base of all nodes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A literal: `12`, `1,234`, `0.5`, `1.2e3`."""

    value: int | Fraction


@dataclass(frozen=True, slots=True)
class Name(Node):
    r"""A letter or a command that stands for itself: `x`, `\alpha`, `x_1`; also `pi`, `e`, `i`, `infinity`."""

    text: str


@dataclass(frozen=True, slots=True)
class Sum(Node):
    """Terms that are added; a difference is a sum with a `Negative`."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """`-a`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class PlusMinus(Node):
    r"""`\pm a`, or `\mp a` with the opposite sign first."""

    operand: Node
    is_flipped: bool = False


@dataclass(frozen=True, slots=True)
class Product(Node):
    """Factors that are multiplied."""

    factors: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Quotient(Node):
    r"""`a / b` or `\frac{a}{b}`."""

    numerator: Node
    denominator: Node


@dataclass(frozen=True, slots=True)
class Mixed(Node):
    r"""`1\frac12` or `1 1/2`: a whole number and a proper fraction beside it."""

    whole: Number
    fraction: Quotient


@dataclass(frozen=True, slots=True)
class Power(Node):
    """`a ^ b`."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function of arguments: `sqrt`, `ln`, `factorial`, `abs`, or a name such as `f`."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """A value with a unit, a currency or a percent sign, the unit spelled as in `units`."""

    value: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Group(Node):
    r"""Items between brackets: `(1,2)`, `[1,2)`, `\{1,2\}`, `<1,2>`."""

    opening: str
    items: tuple[Node, ...]
    closing: str


@dataclass(frozen=True, slots=True)
class Listing(Node):
    """Items without brackets: `1, 2` or `x = 1 or x = 2`."""

    items: tuple[Node, ...]
    separator: str = ","
    """`,`, `and`, `or`; `,` if they are mixed."""


@dataclass(frozen=True, slots=True)
class Builder(Node):
    r"""`\{ x \mid x > 3 \}`."""

    element: Node
    condition: Node


@dataclass(frozen=True, slots=True)
class Relation(Node):
    """`a < b <= c`: one more term than signs; signs are `=`, `!=`, `<`, `>`, `<=`, `>=`, `in`, `~`."""

    terms: tuple[Node, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Congruent(Node):
    r"""`x \equiv a \pmod m`."""

    relation: Relation
    modulus: Node


@dataclass(frozen=True, slots=True)
class SetOperation(Node):
    """`union`, `intersection` or `difference` of two sets."""

    operation: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Matrix(Node):
    """Rows of entries."""

    rows: tuple[tuple[Node, ...], ...]
    is_determinant: bool = False
    """Written between vertical bars."""


@dataclass(frozen=True, slots=True)
class InBase(Node):
    """A numeral with a stated base: `1011_2`."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Ratio(Node):
    """`3 : 4`."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Dots(Node):
    r"""`\ldots`: entries that are left to the reader."""


@dataclass(frozen=True, slots=True)
class Words(Node):
    """A text answer."""

    text: str
