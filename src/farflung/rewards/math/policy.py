"""What counts as equal where mathematics alone does not say: one documented parameter for each choice.

Nothing here is a guess about a particular data set. A pool names its policy with its grader, so that a verdict can be
replayed. This module does not know how answers are parsed.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class PercentPolicy(StrEnum):
    """What `50%` is."""

    VALUE = "value"
    """One half: equals `0.5` and `1/2`, and never `50`."""
    DISTINCT = "distinct"
    """A percentage: equals only another percentage."""
    IGNORE = "ignore"
    """The sign says nothing: equals `50`."""


class UnitPolicy(StrEnum):
    """What `5 cm` is beside `5`."""

    OPTIONAL = "optional"
    """A unit may be left out on one side; where both name one, it must be the same quantity (5 cm = 0.05 m)."""
    REQUIRED = "required"
    """Both sides name the unit or neither does."""
    IGNORE = "ignore"
    """Units are dropped: `5 cm` equals `5 m`."""


class OrderPolicy(StrEnum):
    """Whether order counts in a bare list such as `1, 2`."""

    FREE = "free"
    """A bare list is the list of all solutions: `1, 2` equals `2, 1` and the set of both."""
    FIXED = "fixed"
    """Order counts, and a bare list equals no set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MathPolicy:
    """Choices of `grade_math`. The defaults are strict: no tolerance, tuples ordered, units that are named agree."""

    percent: PercentPolicy = PercentPolicy.VALUE
    """What a percent sign means."""
    units: UnitPolicy = UnitPolicy.OPTIONAL
    """What a unit or a currency sign means."""
    bare_lists: OrderPolicy = OrderPolicy.FREE
    """Whether `1, 2` equals `2, 1`. Tuples, `(1, 2)`, are always ordered; sets, `{1, 2}`, never."""
    absolute_tolerance: Fraction = Fraction(0)
    """Rational numbers may differ by this much. Zero: exactly equal."""
    relative_tolerance: Fraction = Fraction(0)
    """Rational numbers may differ by this share of the reference. Zero: exactly equal."""
    significant_figures: int | None = None
    """Round both rational numbers, half away from zero, to so many figures before comparing. None: no rounding."""
    unreduced_fractions: bool = True
    r"""Whether `\frac{2}{4}` in the answer may stand for one half. False: fractions of integers in lowest terms."""
    mixed_numbers: bool = True
    r"""Whether `1\frac12` is one and a half. False: such a text has no value, since it may also mean a product."""
    text_case: bool = False
    """Whether upper and lower case differ in text answers such as `\\text{Monday}`."""
    drop_left_side: bool = True
    """Whether `x = 5` equals a reference without a left side, `5`, and the reverse."""
    intervals_as_inequalities: bool = True
    """Whether `x > 3` equals `(3, oo)`, and `0 < x < 1` equals `(0, 1)`."""

    def __post_init__(self) -> None:
        if self.absolute_tolerance < 0 or self.relative_tolerance < 0:
            raise ValueError("a tolerance is 0 or more")
        if self.significant_figures is not None and not 1 <= self.significant_figures <= 50:
            raise ValueError(f"significant_figures ({self.significant_figures}) is from 1 to 50")


DEFAULT_POLICY = MathPolicy()
