"""A file of samples: interrupted, cut short, of another evaluation."""

import subprocess
import sys
from pathlib import Path

import pytest

from farflung.errors import UserError
from farflung.evaluation.records import SampleFile, SampleRow

HEADER = {"model": "m", "seed": 0}


def row(task: int, sample: int = 0) -> SampleRow:
    return SampleRow(
        task=task, sample=sample, task_id=f"heldout/{task}", completion="42\n", num_tokens=3, is_truncated=False,
        reward=1.0, correct=None,
    )  # fmt: skip


def test_rows_come_back(tmp_path: Path) -> None:
    SampleFile(tmp_path / "a" / "s.jsonl", HEADER, 1).append([row(0), row(1)])
    assert SampleFile(tmp_path / "a" / "s.jsonl", HEADER, 1).rows == [row(0), row(1)]


@pytest.mark.parametrize("num_cut", [1, 5, 30])
def test_a_line_cut_short_is_dropped_and_the_next_one_is_whole(tmp_path: Path, num_cut: int) -> None:
    path = tmp_path / "s.jsonl"
    SampleFile(path, HEADER, 1).append([row(0), row(1)])
    path.write_bytes(path.read_bytes()[:-num_cut])
    file = SampleFile(path, HEADER, 1)
    assert file.rows == [row(0)]
    file.append([row(2)])
    assert SampleFile(path, HEADER, 1).rows == [row(0), row(2)]


def test_another_evaluation_is_named_with_the_difference(tmp_path: Path) -> None:
    SampleFile(tmp_path / "s.jsonl", HEADER, 1).append([row(0)])
    with pytest.raises(UserError, match="seed: 0 -> 1"):
        SampleFile(tmp_path / "s.jsonl", {**HEADER, "seed": 1}, 1)


@pytest.mark.parametrize("content", ["hello\n", "{}\n", '{"header": {}}\n{"task": 1}\n', "[]\n"])
def test_any_other_file_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match="choose another --out"):
        SampleFile(path, HEADER, 1)
    assert path.read_text() == content


def test_a_file_without_samples_belongs_to_nobody(tmp_path: Path) -> None:
    SampleFile(tmp_path / "s.jsonl", HEADER, 1)
    other = {**HEADER, "seed": 1}
    assert SampleFile(tmp_path / "s.jsonl", other, 1).rows == []
    SampleFile(tmp_path / "s.jsonl", other, 1).append([row(0)])
    assert SampleFile(tmp_path / "s.jsonl", other, 1).rows == [row(0)]


def test_a_task_with_some_of_its_samples_is_sampled_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    SampleFile(path, HEADER, 2).append([row(0, 0), row(0, 1), row(1, 0)])
    assert SampleFile(path, HEADER, 2).rows == [row(0, 0), row(0, 1)]
    assert SampleFile(path, HEADER, 1).rows == [row(0, 0), row(0, 1)]


def test_two_evaluations_at_once_do_not_write_into_one_file(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from farflung.evaluation.records import SampleFile\n"
        f"held = SampleFile(Path({str(tmp_path / 's.jsonl')!r}), {HEADER!r}, 1)\n"
        "print('here', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"here\n"
        with pytest.raises(UserError, match="another evaluation is writing"):
            SampleFile(tmp_path / "s.jsonl", HEADER, 1)
        other.kill()
    SampleFile(tmp_path / "s.jsonl", HEADER, 1)
