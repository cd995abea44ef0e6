"""Small cheats add up: what a node's accepted submissions say together, one after another.

    ratio    r_t = (figure of submission t / what honest work has)^4            mean at most 1 if the node is honest
    factor   F_t = 1 - b + b r_t                                               0 < b < 1, likewise
    evidence E_t = sum over j <= t of w_j F_j F_j+1 ... F_t                     w_j = 1 / (j (j + 1))

E starts small and its mean never grows beyond 1 while the node is honest, whatever the distribution of its figures; so
the chance that it *ever* reaches 1 / a is at most a (Ville's inequality; a test martingale, mixed over when the cheat
may have begun). Several bets b on two figures are averaged, which keeps that. The fourth power gives weight to what is
a little too large every time: half as much again is five times the ratio.

Rejected submissions speak for themselves and are not counted. Pure; it does not know nodes or where figures are kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farflung.wire.proof import Expected

BETS = (0.1, 0.5, 0.95)
FALSE_ALARM = 1e-6
"""Largest chance that an honest node is ever pointed at."""
POWER = 4
ROOM = 1.25
"""Of an expectation over what was measured: other machines of a kind, and few submissions."""
LEAST_DISTANCE, LEAST_MARGIN = 0.004, 0.0004
"""Expected of a kind of machine that agreed exactly, where others of its kind will not quite."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What is known of one node."""

    num_submissions: int = 0
    logs: tuple[float, ...] = (-math.inf,) * (2 * len(BETS))
    """Logarithm of the evidence by each bet on each figure."""
    peak: float = -math.inf
    """Largest logarithm of their mean so far."""

    def is_alarm(self, false_alarm: float = FALSE_ALARM) -> bool:
        """Whether honest work would ever look like this only with so small a chance."""
        return self.peak >= -math.log(false_alarm)


def after(drift: Drift, distance: float, mean_margin: float, expected: Expected) -> Drift:
    """With one more accepted submission.

    Args:
        distance: `proof_checks.submission_distance`.
        mean_margin: `proof_checks.mean_margin`.
    """
    number = drift.num_submissions + 1
    start = -math.log(number * (number + 1))
    ratios = ((distance / expected.distance) ** POWER, (mean_margin / expected.mean_margin) ** POWER)
    factors = [1 - bet + bet * ratio for ratio in ratios for bet in BETS]
    logs = [float(np.logaddexp(log, start)) + math.log(factor) for log, factor in zip(drift.logs, factors, strict=True)]
    mean = float(np.logaddexp.reduce(logs)) - math.log(len(logs))
    return Drift(num_submissions=number, logs=tuple(logs), peak=max(drift.peak, mean))


def expectation(honest: Sequence[Sequence[tuple[float, float]]]) -> Expected:
    """From (distance, mean margin) of submissions, one sequence for each kind of honest machine; the worst kind counts.

    Raises:
        ValueError: there is no submission of some kind.
    """
    if not honest or not all(honest):
        raise ValueError("no honest submission was measured")
    distance = max(_power_mean([figures[0] for figures in kind]) for kind in honest)
    margin = max(_power_mean([figures[1] for figures in kind]) for kind in honest)
    return Expected(
        distance=max(ROOM * distance, LEAST_DISTANCE),
        mean_margin=max(ROOM * margin, LEAST_MARGIN),
    )


def _power_mean(figures: Sequence[float]) -> float:
    return float(np.mean(np.asarray(figures) ** POWER) ** (1 / POWER))
