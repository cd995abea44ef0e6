"""How a count compares with the number that an instruction names."""

from typing import Literal

Relation = Literal["at least", "less than"]
"""As IFEval words them."""


def compares(count: int, relation: Relation, number: int) -> bool:
    return count >= number if relation == "at least" else count < number
