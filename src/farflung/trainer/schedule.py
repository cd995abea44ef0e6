"""Learning rate of an optimizer step: linear warm-up, then constant or linear decay."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """lr(step) = lr * min(1, (step + 1) / warmup_steps) * (1 - (1 - final_share) * step / total_steps)."""

    lr: float
    warmup_steps: int
    final_share: float
    total_steps: int

    def at(self, step: int) -> float:
        """`step` counts from 0; beyond `total_steps` the final share stays."""
        warmup = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        progress = min(1.0, step / self.total_steps)
        return self.lr * warmup * (1.0 - (1.0 - self.final_share) * progress)
