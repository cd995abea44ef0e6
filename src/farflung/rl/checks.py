"""Refusing parameters of an objective, with value and rule."""


def require(holds: bool, message: str) -> None:
    """Raises `ValueError` with the message unless it holds; a comparison with nan does not hold."""
    if not holds:
        raise ValueError(message)


def require_name(field: str, value: str, valid: tuple[str, ...]) -> None:
    """Raises `ValueError` with the list of valid names."""
    require(value in valid, f"{field} is {value!r}: it must be one of {', '.join(valid)}")


def require_loss_tokens(num_loss_tokens: int) -> None:
    """Raises `ValueError` for a step without tokens, which has no mean."""
    require(num_loss_tokens >= 1, f"num_loss_tokens is {num_loss_tokens}: it must be >= 1, skip a step without tokens")


def require_clip(clip_low: float, clip_high: float) -> None:
    """Raises `ValueError` unless 1 - clip_low is in (0, 1) and 1 + clip_high above 1."""
    require(0 < clip_low < 1, f"clip_low is {clip_low}: it must be above 0 and below 1, usually 0.2")
    require(clip_high > 0, f"clip_high is {clip_high}: it must be above 0, usually 0.28")
