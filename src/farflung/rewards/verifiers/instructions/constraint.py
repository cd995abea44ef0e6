"""What every constraint is: a frozen record of an instruction's arguments that says whether a text keeps to it."""

import msgspec


class Constraint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields are the arguments, by the names that IFEval gives them."""

    def holds(self, text: str) -> bool:
        """Whether `text` keeps to it; never raises, linear in the text."""
        raise NotImplementedError
