"""Layers that look back a bounded number of tokens."""

from dataclasses import dataclass

from farflung.model.json_values import require


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalAttention:
    """Sliding-window layers, all of them or between layers that see everything (Mistral, Gemma 3)."""

    window: int
    """A token sees itself and the `window - 1` tokens before it."""
    rope_theta: float | None = None
    """Rotary base of the local layers, unscaled. None = they turn as all others do."""
    is_local: tuple[bool, ...]
    """Per layer."""

    def __post_init__(self) -> None:
        require(self.window >= 1, f"window is {self.window}: it must be at least 1")
        theta = self.rope_theta
        require(theta is None or theta > 0, f"rope_theta of local layers is {theta}: it must be above 0")
