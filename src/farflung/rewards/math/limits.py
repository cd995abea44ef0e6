"""How much work one expression may cost: every limit of the package, and the budget that keeps to them.

The limits bound time and memory for any text whatever, so that no grading needs a watchdog: the nodes of the tree, the
bits of a number, the terms of a polynomial, and the sum of it all. A text over a limit is `OverLimits`, which the
grading turns into a verdict; it never reaches a caller of the package.
"""

MAX_CHARACTERS = 4_000
"""Longest text that is parsed. A reference answer is rarely over 200 characters; plain integers have no such limit."""

MAX_TOKENS = 1_500
"""Most tokens of one text."""

MAX_DEPTH = 80
"""Deepest nesting of groups, fractions, exponents and postfix signs."""

MAX_DIGITS = 4_000
"""Most digits of a number inside an expression (Python itself refuses to convert more than 4300)."""

MAX_BITS = 1 << 16
"""Most bits of a numerator or a denominator, 19,700 decimal digits: 5000! fits, 99999999! does not."""

MAX_FACTORIAL = 5_000
"""Largest n of n!."""

MAX_TERMS = 256
"""Most terms of a polynomial; (a+b+c)^16 has 153."""

MAX_EXPONENT = 100
"""Largest power to which a sum of several terms is raised."""

MAX_ITEMS = 200
"""Most entries of a list, set or matrix."""

MAX_WORK = 40_000
"""Units of one text, see `Budget`; a few tenths of a second at worst."""

_BITS_PER_UNIT = 512


class OverLimits(Exception):
    """The text, or a value on the way, is larger than any answer that these rules compare."""


class NotExact(Exception):
    """The text is outside the grammar, or its value has no exact normal form here; the message names the place."""


class CutShort(NotExact):
    """The text ends where an operand or a closing bracket must come."""


class Undefined(Exception):
    """The text has no value: a division by zero, the logarithm of zero."""


class Budget:
    """Work left for one text. One unit is about one multiplication of small fractions."""

    __slots__ = ("_left",)

    def __init__(self, units: int = MAX_WORK) -> None:
        self._left = units

    def spend(self, units: int = 1) -> None:
        """Take `units` off; raises OverLimits when nothing is left."""
        self._left -= units
        if self._left < 0:
            raise OverLimits("too much work")

    def spend_bits(self, bits: int, times: int = 1) -> None:
        """Take off what `times` exact operations on numbers of `bits` bits cost (quadratic, as gcd is)."""
        if bits > MAX_BITS:
            raise OverLimits("number too large")
        if bits > _BITS_PER_UNIT:
            self.spend(times * (1 + (bits // _BITS_PER_UNIT) ** 2 // 16))
