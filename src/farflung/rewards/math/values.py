"""What an answer means: the canonical values that `compare` compares. Scalars are in `scalar`."""

from dataclasses import dataclass
from fractions import Fraction

from farflung.rewards.math.scalar import Scalar


@dataclass(frozen=True, slots=True)
class Infinite:
    """Plus or minus infinity."""

    sign: int


Bound = Scalar | Infinite


@dataclass(frozen=True, slots=True)
class Measured:
    """A scalar with a unit; a percentage is the number before the sign, with the unit `%`."""

    number: Scalar
    unit: str


@dataclass(frozen=True, slots=True)
class Interval:
    """A connected set of real numbers; an infinite bound is open."""

    low: Bound
    high: Bound
    is_low_closed: bool
    is_high_closed: bool


@dataclass(frozen=True, slots=True)
class RealSet:
    """A union of intervals: the empty union is the empty set."""

    intervals: tuple[Interval, ...]
    variable: str | None = None
    """The name in an inequality; None for a set that was written as one."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """Ordered items between brackets, as they were written; two of them may also be the ends of an interval."""

    items: "tuple[Value, ...]"
    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class Collection:
    """Items without order: a set in braces, or a bare list."""

    items: "tuple[Value, ...]"
    is_set: bool
    has_gap: bool = False
    """An ellipsis stands for some of them."""


@dataclass(frozen=True, slots=True)
class MatrixOf:
    """Rows of scalars."""

    rows: tuple[tuple[Scalar, ...], ...]
    is_determinant: bool


@dataclass(frozen=True, slots=True)
class Assigned:
    """`x = value`; `difference` is the equation as a scalar that is zero, None where the value is no scalar."""

    names: tuple[str, ...]
    value: "Value"
    difference: Scalar | None


@dataclass(frozen=True, slots=True)
class Equation:
    """`left = right` as left - right, which is zero."""

    difference: Scalar


@dataclass(frozen=True, slots=True)
class Congruence:
    """`x = residue` up to multiples of the modulus, which is positive."""

    name: str
    residue: int
    modulus: int


@dataclass(frozen=True, slots=True)
class Proportion:
    """`a : b`."""

    terms: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Numeral:
    """A numeral with a stated base and its value."""

    value: Fraction
    base: int


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Integers, naturals, rationals or complex numbers as a whole."""

    name: str


@dataclass(frozen=True, slots=True)
class Gap:
    """An ellipsis in a list."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text answer: words, with single spaces, without closing marks."""

    words: str


Value = (
    Scalar
    | Infinite
    | Measured
    | RealSet
    | Sequence
    | Collection
    | MatrixOf
    | Assigned
    | Equation
    | Congruence
    | Proportion
    | Numeral
    | NumberSet
    | Gap
    | Text
)
