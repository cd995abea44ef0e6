"""What is drawn in one colour: a run, or the seeds of one experiment together."""

from collections.abc import Sequence
from dataclasses import dataclass

from farflung.cli.plot.axis import Axis
from farflung.cli.plot.runs import Run

# Okabe and Ito's palette (jfly.uni-koeln.de/color, 2008), which people with any kind of colour vision tell apart; its
# yellow is left out, which is not seen on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What all pictures of a page have in common."""

    axis: Axis = "versions"
    smoothing: float | None = None
    """Weight of the past, 0 = none; None = by the number of points."""
    is_grouped: bool = False
    """Runs whose names differ in a number at the end become a mean and a band."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Family:
    """Runs of one colour."""

    name: str
    colour: str
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        return self.name if len(self.runs) == 1 else f"{self.name} (mean and range of {len(self.runs)})"


def families(runs: Sequence[Run], is_grouped: bool) -> list[Family]:
    """In the order given."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.family if is_grouped else run.name, []).append(run)
    return [
        Family(name=name, colour=COLOURS[position % len(COLOURS)], runs=tuple(members))
        for position, (name, members) in enumerate(groups.items())
    ]


def all_runs(group: Sequence[Family]) -> list[Run]:
    return [run for family in group for run in family.runs]
