"""Figures of an evaluation by difficulty."""

import io
from typing import Any

import pytest
from rich.console import Console

from farflung.cli.evaluate_report import Report, levels_of
from farflung.evaluation.records import SampleRow

REPORT = Report(env="e", split="heldout", num_samples=2, ks=(1, 2))


def row(task: int, sample: int, correct: float | None, level: str = "") -> SampleRow:
    return SampleRow(
        task=task,
        sample=sample,
        task_id=f"heldout/{task}",
        completion="x",
        num_tokens=10 * (task + 1),
        is_truncated=False,
        reward=correct,
        correct=correct,
        level=level,
    )


ROWS = [
    *(row(0, sample, 1.0, "2 steps") for sample in range(2)),
    *(row(1, sample, float(sample), "10 steps") for sample in range(2)),
    *(row(2, sample, 0.0, "10 steps") for sample in range(2)),
]


def printed(rows: list[SampleRow]) -> str:
    out = io.StringIO()
    for table in REPORT.tables(rows, 0):
        Console(file=out, width=100).print(table)
    return out.getvalue()


def test_each_level_has_its_own_figures_and_levels_are_in_their_order() -> None:
    result = REPORT.result(ROWS, 0)
    by_level: dict[str, dict[str, Any]] = result["by_level"]
    assert list(by_level) == ["2 steps", "10 steps"]
    assert [by_level[level]["avg@2"]["value"] for level in by_level] == [1.0, 0.25]
    assert [by_level[level]["pass@2"]["value"] for level in by_level] == [1.0, 0.5]
    assert [by_level[level]["num_tasks"] for level in by_level] == [1, 2]
    assert result["avg@2"]["value"] == pytest.approx(0.5)


def test_the_table_by_difficulty_has_a_line_for_each_level() -> None:
    text = printed(ROWS)
    assert "by difficulty" in text
    lines = [line.split() for line in text.splitlines() if " steps" in line]
    assert [line[:4] for line in lines] == [["2", "steps", "1", "1.000"], ["10", "steps", "2", "0.250"]]


def test_one_level_or_none_is_no_breakdown() -> None:
    for rows in ([row(0, 0, 1.0)], [row(0, 0, 1.0, "easy"), row(1, 0, 1.0, "easy")]):
        assert levels_of(rows) == {}
        assert "by_level" not in REPORT.result(rows, 0)
        assert "by difficulty" not in printed(rows)


def test_rows_without_a_level_among_others_are_not_known() -> None:
    assert list(levels_of([row(0, 0, 1.0), row(1, 0, 1.0, "easy")])) == ["easy", "not known"]
