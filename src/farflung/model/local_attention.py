"""Layers that look back a bounded number of tokens."""

from dataclasses import dataclass

from farflung.model.json_values import require


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalAttention:
    """Sliding-window layers between layers that see everything (Gemma 3)."""

    window: int
    """A token sees itself and the `window - 1` tokens before it."""
    rope_theta: float
    """Rotary base of the local layers, unscaled."""
    is_local: tuple[bool, ...]
    """Per layer."""

    def __post_init__(self) -> None:
        require(self.window >= 1, f"window is {self.window}: it must be at least 1")
        require(self.rope_theta > 0, f"rope_theta of local layers is {self.rope_theta}: it must be above 0")
