"""Whitening over the whole optimizer step: mean 0, sample std 1 over all loss tokens of all micro-batches and ranks.

    A_t = (x_t - mean) / (std + eps)

Parts report moments, the moments add up, then each part whitens itself. float64, since a variance from sums cancels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EPS = 1e-8
"""As verl and OpenRLHF: keeps a batch of equal values at 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Of any number of values, about their own mean, so that parts combine without cancellation."""

    count: int
    mean: float
    squares: float
    """Sum of squared distances from the mean."""

    @classmethod
    def of(cls, values: NDArray[np.floating], mask: NDArray[np.bool_]) -> "Moments":
        """Of what the mask selects, any shape."""
        selected = values[mask].astype(np.float64)
        if not len(selected):
            return cls(count=0, mean=0.0, squares=0.0)
        mean = float(selected.mean())
        return cls(count=len(selected), mean=mean, squares=float(((selected - mean) ** 2).sum()))

    def __add__(self, other: "Moments") -> "Moments":
        """Of both parts together (Chan's update)."""
        count = self.count + other.count
        if not count:
            return self
        distance = other.mean - self.mean
        return Moments(
            count=count,
            mean=self.mean + distance * other.count / count,
            squares=self.squares + other.squares + distance**2 * self.count * other.count / count,
        )

    @property
    def std(self) -> float:
        """Sample std; 0 for fewer than two values."""
        return (self.squares / (self.count - 1)) ** 0.5 if self.count > 1 else 0.0


def whiten(values: NDArray[np.floating], mask: NDArray[np.bool_], moments: Moments) -> NDArray[np.float64]:
    """Values of the same shape, 0 where masked."""
    whitened: NDArray[np.float64] = (np.where(mask, values, moments.mean) - moments.mean) / (moments.std + EPS)
    return np.where(mask, whitened, 0.0)
