"""Learning rate of an optimizer step, a pure function of its number.

lr(step) = lr * warm-up * shape        warm-up = min(1, (step + 1) / warmup_steps)
p = (step - warmup_steps) / (total_steps - warmup_steps), between 0 and 1;   f = final_share, d = decay_share

constant   1
linear     1 - (1 - f) p
cosine     f + (1 - f) (1 + cos(pi p)) / 2
wsd        1 until p = 1 - d, then linear to f at p = 1      (warm-up, stable, decay; 2404.06395)
"""

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["constant", "linear", "cosine", "wsd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Beyond `total_steps` the rate stays where it ended."""

    shape: Shape
    lr: float
    warmup_steps: int
    total_steps: int
    """Optimizer steps of the whole run."""
    final_share: float = 0.0
    decay_share: float = 0.2
    """wsd: share of the steps after the warm-up in which the rate falls; above 0."""

    def at(self, step: int) -> float:
        """`step` counts from 0."""
        warmup = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        after = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        return self.lr * warmup * self._shape(min(1.0, max(0.0, after)))

    def _shape(self, progress: float) -> float:
        match self.shape:
            case "constant":
                return 1.0
            case "linear":
                fallen = progress
            case "cosine":
                fallen = (1.0 - math.cos(math.pi * progress)) / 2
            case "wsd":
                fallen = max(0.0, 1.0 - (1.0 - progress) / self.decay_share)
        return 1.0 - (1.0 - self.final_share) * fallen
