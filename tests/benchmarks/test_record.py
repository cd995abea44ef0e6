"""Figures survive as JSON lines, and the report shows the newest of each name."""

import json
from pathlib import Path

from benchmarks.record import record, results
from benchmarks.report import report


def test_a_figure_is_one_line_with_ratio_machine_and_date(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    entry = record("engine/x", 3.0, 2.0, "peer 1.2", "tokens/CPU-s", {"why": "because"}, path=path)
    record("engine/y", 5.0, None, None, "s", path=path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == list(results(path))
    assert (entry["ratio"], entry["peer_version"], entry["detail"]) == (1.5, "peer 1.2", {"why": "because"})
    assert "torch" in entry["machine"]
    assert len(entry["date"]) == 10
    assert list(results(path))[1]["ratio"] is None


def test_the_report_shows_the_newest_figure_of_each_name(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    record("engine/x", 3.0, 2.0, "peer 1.2", "tokens/CPU-s", {"why": "old"}, path=path)
    record("demo", 42.0, None, None, "s", path=path)
    record("engine/x", 4.0, 2.0, "peer 1.3", "tokens/CPU-s", {"why": "new"}, path=path)
    text = report(results(path))
    assert "| engine/x | 4 | 2 (peer 1.3) | 2.00 | tokens/CPU-s |" in text
    assert "| demo | 42 | - | - | s |" in text
    assert "- why: new" in text
    assert "old" not in text
