"""All usable data sets of one category of reasoning-gym: `reasoning-gym:arithmetic/all`.

A mixture with equal shares, so that figures come for each data set. Left out are the refused ones, those without a
reference answer, and those that take long to make a puzzle. `num_tasks`, `num_heldout_tasks`, `answer_format`,
`partial` and `characters` hold for every data set; other arguments are data sets' own and are not taken here.
"""

import difflib
from collections.abc import Mapping

from farflung.envs.mixture import MEMBERS, Load, Mixture
from farflung.envs.reasoning_gym import PREFIX, ReasoningGymConfig
from farflung.envs.reasoning_gym_sets import REFUSED, categories
from farflung.errors import UserError
from farflung.wire.pool import EnvArg

SUFFIX = "/all"
LEFT_OUT = frozenset(
    {"arc_1d", "arc_agi", "rearc", "sokoban", "futoshiki", "zebra_puzzles", "boxnet", "graph_color"} | set(REFUSED)
)
"""Slow to make (0.1 to 15 seconds a puzzle), without a reference answer, or refused."""


class ReasoningGymSuite(Mixture):
    """One category."""

    def __init__(self, category: str, seed: int, args: Mapping[str, EnvArg], load: Load) -> None:
        """Raises `UserError` for an unknown category or argument."""
        known = usable_categories()
        if category not in known:
            close = difflib.get_close_matches(category, known, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise UserError(f'reasoning-gym has no category "{category}"; {meant}it has {", ".join(sorted(known))}')
        members = known[category]
        own = sorted(ReasoningGymConfig.model_fields)
        for argument in args:
            if argument not in own:
                raise UserError(
                    f"{PREFIX}{category}{SUFFIX} has no argument {argument}; it has {', '.join(own)}, "
                    "which hold for all its data sets"
                )
        shared = {f"{member}.{key}": value for member in members for key, value in args.items()}
        named = ", ".join(f"{member}={PREFIX}{member}" for member in members)
        super().__init__(seed, {MEMBERS: named, **shared}, load)
        self.name = f"{PREFIX}{category}{SUFFIX}"


def usable_categories() -> dict[str, list[str]]:
    """Category -> its data sets that are not left out, if there are any. Raises `UserError` without the library."""
    usable = {name: [each for each in datasets if each not in LEFT_OUT] for name, datasets in categories().items()}
    return {name: datasets for name, datasets in usable.items() if datasets}
