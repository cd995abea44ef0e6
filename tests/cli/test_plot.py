"""Curves and bars as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.cli.view import words
from farflung.cli.view.plot import bar, curve, nice_range, smoothed, sparkline


def dots(lines: list[str]) -> set[tuple[int, int]]:
    """(column, row) of every dot, decoded from the code points."""
    found = set()
    for line_number, line in enumerate(lines):
        for cell_number, cell in enumerate(line):
            bits = 0 if cell == " " else ord(cell) - 0x2800
            for column in range(2):
                for row in range(4):
                    bit = (0, 1, 2, 6)[row] + 3 * column if row < 3 else 6 + column
                    if bits >> bit & 1:
                        found.add((2 * cell_number + column, 4 * line_number + row))
    return found


def test_a_straight_line_is_drawn_from_corner_to_corner() -> None:
    lines = curve([(0, 0), (1, 1)], width=4, height=2, x_range=(0, 1), y_range=(0, 1))
    assert dots(lines) == {(column, 7 - column) for column in range(8)}


def test_points_that_share_a_column_are_averaged() -> None:
    lines = curve([(0, 0.0), (0, 1.0)], width=1, height=1, x_range=(0, 1), y_range=(0, 3))
    assert dots(lines) == dots(curve([(0, 0.5)], width=1, height=1, x_range=(0, 1), y_range=(0, 3)))


def test_no_points_give_blank_lines() -> None:
    assert curve([], width=3, height=2, x_range=(0, 1), y_range=(0, 1)) == ["   ", "   "]


@given(
    points=st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), max_size=30).map(sorted),
    width=st.integers(1, 20),
    height=st.integers(1, 9),
)
def test_a_curve_keeps_its_size_and_leaves_no_gap(points: list[tuple[float, float]], width: int, height: int) -> None:
    lines = curve(points, width=width, height=height, x_range=(0, 5), y_range=(0, 1))
    assert [len(line) for line in lines] == [width] * height
    drawn = {column for column, _ in dots(lines)}
    assert drawn == (set(range(min(drawn), max(drawn) + 1)) if drawn else set())
    assert bool(drawn) == bool(points)


def test_a_sparkline_is_scaled_to_its_largest_and_shows_every_value_above_zero() -> None:
    assert sparkline([0, 1, 50, 100, 1000]) == " ▁▁▁█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "


@pytest.mark.parametrize(
    ("share", "expected"), [(0, "    "), (1, "████"), (0.5, "██  "), (0.3, "█▎  "), (-1, "    "), (9, "████")]
)
def test_a_bar_shows_a_share(share: float, expected: str) -> None:
    assert bar(share, 4) == expected


@pytest.mark.parametrize(
    ("values", "expected"), [([], (0, 1)), ([0.2, 0.9], (0, 1)), ([-0.3, 0.9], (-0.5, 1.0)), ([-12, 40], (-15, 40))]
)
def test_axes_have_round_bounds(values: list[float], expected: tuple[float, float]) -> None:
    assert nice_range(values) == pytest.approx(expected)


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_axes_hold_every_value(values: list[float]) -> None:
    low, high = nice_range(values)
    assert low <= min(values)
    assert max(values) <= high
    assert low < high


def test_smoothing_keeps_a_constant_and_starts_at_the_first_value() -> None:
    assert smoothed([3.0, 3.0, 3.0], 0.9) == pytest.approx([3.0, 3.0, 3.0])
    assert smoothed([1.0, 2.0], 0.5) == pytest.approx([1.0, (0.25 * 1 + 0.5 * 2) / 0.75])


def test_numbers_are_written_as_a_person_reads_them() -> None:
    assert [words.duration(s) for s in (0, 59.6, 185, 7620, -1)] == [
        "0 s",
        "1 min 00 s",
        "3 min 05 s",
        "2 h 07 min",
        "0 s",
    ]
    assert [words.count(n) for n in (0, 999, 1000, 12_345, 999_499, 999_600, 3_140_000, 2e9)] == [
        "0", "999", "1 k", "12.3 k", "999 k", "1 M", "3.14 M", "2 G"
    ]  # fmt: skip
    assert words.percent(0.256) == "26 %"
