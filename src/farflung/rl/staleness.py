"""How many policy versions behind the trainer a rollout is.

    staleness = version that trains on it - version that sampled it

Versions count publications. Measured at the moment of use, so time spent in queues counts (rl-numerics of the field:
a bound checked only at admission does not hold, because a long rollout can finish too late).
"""

from collections import Counter
from collections.abc import Mapping


def staleness(current_version: int, sampled_with: int) -> int:
    """Versions behind; 0 = sampled with the version that is being trained.

    Raises:
        ValueError: sampled with a version that does not exist yet.
    """
    if sampled_with > current_version:
        raise ValueError(f"sampled with version {sampled_with} but the trainer is at {current_version}")
    return current_version - sampled_with


def is_admissible(current_version: int, sampled_with: int, max_staleness: int) -> bool:
    """True while a rollout may be trained on: its version lies in [current - max_staleness, current]."""
    return 0 <= current_version - sampled_with <= max_staleness


class StalenessHistogram:
    """Counts of something (rollouts, tokens) by staleness. Bounded by the number of distinct values."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, versions: int, count: int = 1) -> None:
        """Raises `ValueError` on negative staleness: a version from the future is a fault, not a small number."""
        if versions < 0:
            raise ValueError(f"staleness is {versions}: it must be >= 0")
        self._counts[versions] += count

    def merge(self, other: "StalenessHistogram") -> None:
        self._counts.update(other.counts)

    @property
    def counts(self) -> Mapping[int, int]:
        """Staleness -> count, ascending."""
        return dict(sorted(self._counts.items()))

    @property
    def total(self) -> int:
        return self._counts.total()

    @property
    def mean(self) -> float:
        """Weighted by count; 0 when empty."""
        return sum(versions * count for versions, count in self._counts.items()) / max(self.total, 1)

    @property
    def max(self) -> int:
        return max(self._counts, default=0)
