"""Arguments of the graders of mathematics: the policy of the exact rules as plain scalars."""

from fractions import Fraction
from typing import Literal

from pydantic import Field

from farflung.config.base import Config
from farflung.rewards.math.policy import MathPolicy, OrderPolicy, PercentPolicy, UnitPolicy


class MathOptions(Config):
    """One choice for each place where mathematics alone does not say; the defaults are strict."""

    percent: Literal["value", "distinct", "ignore"] = "value"
    """What 50% equals: 0.5; only another percentage; or 50."""
    units: Literal["optional", "required", "ignore"] = "optional"
    """A unit may be missing on one side; must be on both or neither; or says nothing."""
    bare_lists: Literal["free", "fixed"] = "free"
    """Whether the order of `1, 2` counts (fixed) or not (free). Tuples are always ordered."""
    absolute_tolerance: float = Field(0.0, ge=0)
    """Numbers may differ by this much."""
    relative_tolerance: float = Field(0.0, ge=0)
    """Numbers may differ by this share of the reference."""
    significant_figures: int = Field(0, ge=0, le=50)
    """Compare numbers rounded to so many figures; 0 = exactly."""
    unreduced_fractions: bool = True
    """Whether 2/4 may stand for 1/2."""
    mixed_numbers: bool = True
    """Whether 1 1/2 is one and a half."""
    text_case: bool = False
    """Whether upper and lower case differ in words."""
    drop_left_side: bool = True
    """Whether `x = 5` equals `5`."""
    intervals_as_inequalities: bool = True
    """Whether `x > 3` equals the interval from 3 to infinity."""

    def policy(self) -> MathPolicy:
        """For the exact rules; a tolerance is the decimal number as it is written."""
        return MathPolicy(
            percent=PercentPolicy(self.percent),
            units=UnitPolicy(self.units),
            bare_lists=OrderPolicy(self.bare_lists),
            absolute_tolerance=Fraction(repr(self.absolute_tolerance)),
            relative_tolerance=Fraction(repr(self.relative_tolerance)),
            significant_figures=self.significant_figures or None,
            unreduced_fractions=self.unreduced_fractions,
            mixed_numbers=self.mixed_numbers,
            text_case=self.text_case,
            drop_left_side=self.drop_left_side,
            intervals_as_inequalities=self.intervals_as_inequalities,
        )
