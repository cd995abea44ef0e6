"""From measured spreads to thresholds, and what the counts can bear.

    reject   between the largest honest figure and the smallest of any impostor: their geometric mean, but at least
             `MARGIN` times the honest one, so that no honest machine is turned away for being a little worse than those
             that were measured
    slash    the same figure, `SLASH_FACTOR` times as large

A count of none in n trials bounds the rate from above (Clopper-Pearson), and a tail that falls exponentially
extrapolates it: the first is a fact about what was run, the second a guess about what was not, and named so. Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

MARGIN = 1.5
SLASH_FACTOR = 4.0
TAIL_SHARE = 0.1
"""Of the sample: what a tail is fitted to."""
MIN_TAIL = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Separation:
    """One figure, of honest submissions and of impostors."""

    honest_max: float
    impostor_min: float
    """Of those impostors that this figure is meant for."""
    threshold: float

    @property
    def is_clean(self) -> bool:
        """Whether every measured honest submission is below the threshold and every impostor above."""
        return self.honest_max <= self.threshold < self.impostor_min


def separate(honest: Sequence[float], impostors: Sequence[float], *, floor: float) -> Separation:
    """A threshold from figures of whole submissions.

    Args:
        floor: smallest threshold that makes sense, where honest figures are all 0.

    Raises:
        ValueError: there is no honest figure.
    """
    if not honest:
        raise ValueError("no honest submission was measured")
    highest, lowest = max(honest), min(impostors, default=math.inf)
    least = max(MARGIN * highest, floor)
    middle = math.sqrt(highest * lowest) if math.isfinite(lowest) else least
    return Separation(honest_max=highest, impostor_min=lowest, threshold=max(least, middle))


def rate_upper_bound(num_events: int, num_trials: int, confidence: float = 0.95) -> float:
    """Largest rate that is compatible with so few events (one-sided Clopper-Pearson), by bisection.

    >>> round(rate_upper_bound(0, 30_000) * 1e4, 2)
    1.0
    """
    if not 0 <= num_events <= num_trials or num_trials < 1:
        raise ValueError(f"{num_events} of {num_trials}: events lie between 0 and the trials, of which there is one")
    if num_events == num_trials:
        return 1.0
    low, high = num_events / num_trials, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if _at_most(num_events, num_trials, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def wilson_interval(num_events: int, num_trials: int, z: float = 1.96) -> tuple[float, float]:
    """The rate's interval (Wilson 1927); `z` 1.96 is 95 %."""
    if not 0 <= num_events <= num_trials or num_trials < 1:
        raise ValueError(f"{num_events} of {num_trials}: events lie between 0 and the trials, of which there is one")
    rate, square = num_events / num_trials, z * z
    centre = (rate + square / (2 * num_trials)) / (1 + square / num_trials)
    half = (
        z
        / (1 + square / num_trials)
        * math.sqrt(rate * (1 - rate) / num_trials + square / (4 * num_trials * num_trials))
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def extrapolated_tail(figures: Sequence[float], threshold: float) -> float | None:
    """Probability that an honest figure exceeds the threshold, if the tail falls exponentially beyond its start.

    The largest tenth of the figures gives the start u and the mean excess m: P(X > x) = share * exp(-(x - u) / m). An
    extrapolation, not a measurement. None with too few figures, or none that vary.
    """
    count = int(len(figures) * TAIL_SHARE)
    if count < MIN_TAIL:
        return None
    ordered = sorted(figures)
    start, tail = ordered[-count - 1], ordered[-count:]
    excess = sum(figure - start for figure in tail) / count
    if excess <= 0:
        return None
    return TAIL_SHARE * math.exp(-max(0.0, threshold - start) / excess)


def roc(honest: Sequence[float], impostors: Sequence[float]) -> list[tuple[float, float, float]]:
    """(threshold, share of honest above it, share of impostors above it), at every figure that occurs."""
    points = sorted({*honest, *impostors})
    return [(point, _above(honest, point), _above(impostors, point)) for point in points]


def _above(figures: Sequence[float], threshold: float) -> float:
    return sum(figure > threshold for figure in figures) / len(figures) if figures else 0.0


def _at_most(num_events: int, num_trials: int, rate: float) -> float:
    """P(at most so many events) of a binomial."""
    if rate <= 0:
        return 1.0
    log_term = num_trials * math.log1p(-rate)
    total = math.exp(log_term)
    for number in range(1, num_events + 1):
        log_term += math.log((num_trials - number + 1) / number) + math.log(rate) - math.log1p(-rate)
        total += math.exp(log_term)
    return min(1.0, total)
