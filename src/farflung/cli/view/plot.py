"""Curves and bars as text: braille dots (2 x 4 in a character) and eighths of blocks.

This module does not know colours or terminals.
"""

import math
from collections.abc import Sequence

Point = tuple[float, float]
Dot = tuple[int, int]
"""(column, row) from the top left."""

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bit of the dot at (column, row) of a braille character, rows from the top (Unicode chapter 21.1)."""

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LEFT_EIGHTHS = " ▏▎▍▌▋▊▉█"


def curve(
    points: Sequence[Point], *, width: int, height: int, x_range: tuple[float, float], y_range: tuple[float, float]
) -> list[str]:
    """A connected curve through `points` (ascending x) as `height` lines of `width` characters.

    Points that share a column of dots are averaged, so noise does not smear; what lies outside the ranges is drawn at
    the edge.
    """
    columns = _column_means(points, 2 * width, x_range)
    rows = {column: _dot_row(y, 4 * height, y_range) for column, y in columns.items()}
    cells = [[0] * width for _ in range(height)]
    for column, row in _connected(rows):
        cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
    return ["".join(chr(_BRAILLE + cell) if cell else " " for cell in line) for line in cells]


def smoothed(values: Sequence[float], keep: float) -> list[float]:
    """Exponential moving average, corrected for its start; `keep` is the weight of the past, 0 to 1."""
    result, average, weight = [], 0.0, 0.0
    for value in values:
        average = keep * average + (1 - keep) * value
        weight = keep * weight + (1 - keep)
        result.append(average / weight)
    return result


def sparkline(values: Sequence[float]) -> str:
    """One character a value, scaled to the largest; zero is blank and anything above it is visible."""
    top = max(values, default=0.0)
    if top <= 0:
        return " " * len(values)
    return "".join(_EIGHTHS[math.ceil(8 * max(0.0, value) / top)] for value in values)


def bar(share: float, width: int) -> str:
    """A share from 0 to 1 as a bar of at most `width` characters."""
    eighths = round(8 * width * min(1.0, max(0.0, share)))
    full, part = divmod(eighths, 8)
    return ("█" * full + (_LEFT_EIGHTHS[part] if part else "")).ljust(width)


def nice_range(values: Sequence[float]) -> tuple[float, float]:
    """Round bounds that hold all values; [0, 1] when those fit."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    span = max(high - low, 1e-3 * max(abs(high), abs(low)), 1e-9)
    step = 10.0 ** math.floor(math.log10(span)) / 2
    lower, upper = min(low, math.floor(low / step) * step), max(high, math.ceil(high / step) * step)
    return lower, upper if upper > lower else lower + step


def _column_means(points: Sequence[Point], num_columns: int, x_range: tuple[float, float]) -> dict[int, float]:
    """Column of dots -> mean y."""
    low, high = x_range
    by_column: dict[int, list[float]] = {}
    for x, y in points:
        share = (x - low) / (high - low) if high > low else 0.0
        column = min(num_columns - 1, max(0, int(share * num_columns)))
        by_column.setdefault(column, []).append(y)
    return {column: sum(ys) / len(ys) for column, ys in sorted(by_column.items())}


def _dot_row(y: float, num_rows: int, y_range: tuple[float, float]) -> int:
    low, high = y_range
    share = (y - low) / (high - low) if high > low else 0.0
    return min(num_rows - 1, max(0, round((1 - share) * (num_rows - 1))))


def _connected(rows: dict[int, int]) -> list[Dot]:
    """Every dot on the straight lines between neighbouring columns."""
    dots: list[Dot] = []
    before: Dot | None = None
    for column, row in rows.items():
        if before is None:
            dots.append((column, row))
        else:
            dots += _line(before, (column, row))
        before = (column, row)
    return dots


def _line(start: Dot, end: Dot) -> list[Dot]:
    num_steps = max(end[0] - start[0], abs(end[1] - start[1]))
    return [
        (round(start[0] + (end[0] - start[0]) * i / num_steps), round(start[1] + (end[1] - start[1]) * i / num_steps))
        for i in range(num_steps + 1)
    ]
