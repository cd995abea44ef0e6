"""The table of threats names tests that exist, for every threat of workers and validators against verification."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLE = (TESTS.parent / "docs" / "threats.md").read_text()
ROWS = {
    cells[0].strip(): cells[-1]
    for line in TABLE.splitlines()
    if line.startswith(("| W", "| V")) and len(cells := line.strip("| ").split(" | ")) == 4
}


@pytest.mark.parametrize(
    "row", [*(f"W{number}" for number in (*range(1, 29), 30, 33)), *(f"V{number}" for number in (1, 2, 4, 5, 6, 7))]
)
def test_every_threat_has_a_test_that_exists(row: str) -> None:
    named = re.findall(r"`([\w/]+\.py)` ([\w, ]+)", ROWS[row])
    assert named, f"{row} names no test"
    for file, tests in named:
        text = (TESTS / file).read_text()
        for test in tests.split(","):
            assert test.strip() in text, f"{row}: {file} has no {test.strip()}"


def test_rows_are_in_order() -> None:
    for kind in "WV":
        numbers = [int(row[1:]) for row in ROWS if row.startswith(kind)]
        assert numbers == sorted(numbers)
