"""Sizes, shares and times as the tables of `farflung weights` write them."""

from datetime import UTC, datetime


def num_bytes(count: float) -> str:
    """1,234 bytes; 12.3 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def share(value: float) -> str:
    """Three digits, however small."""
    percent = 100 * value
    return f"{percent:.3g} %" if percent else "0"


def times(larger: float, smaller: float) -> str:
    """1/73.2"""
    return f"1/{larger / smaller:.3g}" if smaller else "none"


def moment(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
