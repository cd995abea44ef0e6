"""Data sets on disk, foreign files, overlaps with evaluation sets: whole or absent, bounded, refused in words."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.data import reading, task_row
from farflung.data.decontaminate import MIN_WORDS, Overlaps, words_of
from farflung.data.reading import records, source_of
from farflung.data.task_row import TaskRow, TaskWriter, read_manifest, read_rows
from farflung.errors import UserError

ROWS = [
    TaskRow(id=f"r{number}", prompt=f"What is {number}?", answer=str(number), grader="text@1") for number in range(5)
]


def written(folder: Path, rows: list[TaskRow] = ROWS) -> Path:
    with TaskWriter(folder) as writer:
        for row in rows:
            writer.add(row)
        writer.finish(made_by="test", licence="mit", sources=[], skipped={"no answer": 2})
    return folder


def test_a_data_set_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = written(tmp_path / "d")
    assert list(read_rows(folder)) == ROWS
    manifest = read_manifest(folder)
    assert (manifest.num_tasks, manifest.graders, manifest.skipped) == (5, {"text@1": 5}, {"no answer": 2})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d"]


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with TaskWriter(tmp_path / "d") as writer:
            writer.add(ROWS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_result_says_why_and_an_existing_folder_is_never_written_over(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no answer: 3"), TaskWriter(tmp_path / "d") as writer:
        writer.finish(made_by="t", licence="mit", sources=[], skipped={"no answer": 3})
    (tmp_path / "old").mkdir()
    with pytest.raises(UserError, match="exists"):
        TaskWriter(tmp_path / "old")


def test_a_changed_file_is_not_the_one_of_the_manifest(tmp_path: Path) -> None:
    folder = written(tmp_path / "d")
    path = folder / "tasks.jsonl"
    path.write_bytes(path.read_bytes().replace(b"What is 3", b"What is 4"))
    with pytest.raises(UserError, match="not the file that its manifest describes"):
        list(read_rows(folder))


@pytest.mark.parametrize(
    ("content", "words"), [(b"{", "row 1"), (b'{"id": 3}\n', "row 1"), (b"x" * 300 + b"\n", "more than 256 bytes")]
)
def test_rows_that_are_none_are_named(
    tmp_path: Path, content: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "d")
    monkeypatch.setattr(task_row, "MAX_LINE_BYTES", 256)
    (folder / "tasks.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=words):
        list(read_rows(folder))


def test_a_folder_that_is_no_data_set_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no data set"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "other"}')
    with pytest.raises(UserError, match="damaged"):
        read_manifest(tmp_path)


RECORDS: list[dict[str, Any]] = [{"a": 1, "b": ["x", None]}, {"a": 2, "b": []}]


def test_every_kind_of_file_gives_the_same_records(tmp_path: Path) -> None:
    lines = "\n".join(map(json.dumps, RECORDS)) + "\n\n"
    (tmp_path / "1.jsonl").write_text(lines)
    (tmp_path / "2.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "3.json").write_text(json.dumps(RECORDS))
    pq.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "4.parquet")
    (tmp_path / "notes.txt").write_text("ignored")
    for name in ("1.jsonl", "2.jsonl.gz", "3.json", "4.parquet"):
        assert list(records(tmp_path / name)) == RECORDS
    assert list(records(tmp_path)) == RECORDS * 4
    assert [source.name for source in source_of(tmp_path)] == ["1.jsonl", "2.jsonl.gz", "3.json", "4.parquet"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.jsonl", b"{", "row 1 is not JSON"),
        ("a.jsonl", b"[1]\n", "row 1 is no record"),
        ("a.jsonl", b"[" * 200_000, "not JSON|more than"),
        ("a.json", b"\xff\xfe", "not JSON"),
        ("a.jsonl.gz", b"not gzip", "damaged"),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n')[:-8], "damaged"),
        ("a.parquet", b"PAR1", "not a Parquet file"),
        ("a.csv", b"a,b", "files are read that end in"),
        ("a.bin", b"", "files are read that end in"),
    ],
)
def test_files_that_are_none_are_refused_in_words(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=words):
        list(records(tmp_path / name))


def test_a_line_and_a_json_file_have_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(reading, "MAX_JSON_BYTES", 100)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": "' + b"x" * 200 + b'"}\n'))
    (tmp_path / "a.json").write_bytes(b"[" + b" " * 200 + b"]")
    for name in ("a.jsonl.gz", "a.json"):
        with pytest.raises(UserError, match="more than 100 bytes"):
            list(records(tmp_path / name))


SENTENCE = "Natalia sold clips to forty eight of her friends in April and then she sold half as many clips in May"


def test_a_long_run_of_words_is_found_whatever_stands_around_it() -> None:
    overlaps = Overlaps()
    overlaps.add("a test set", [SENTENCE])
    assert overlaps.find(SENTENCE.upper().replace(" ", " , ")) == "a test set"
    assert overlaps.find("Now: " + " ".join(SENTENCE.split()[3:16]) + " and that was it") == "a test set"
    assert overlaps.find(" ".join(SENTENCE.split()[3:15])) is None, "twelve words are not thirteen"
    assert overlaps.find("Something else entirely, of more than thirteen words, that nobody ever asked before") is None


def test_short_items_count_whole_if_they_are_long_enough() -> None:
    overlaps = Overlaps()
    short = " ".join(SENTENCE.split()[:MIN_WORDS])
    overlaps.add("short", [short, "What is it?"])
    assert overlaps.find(f"Once more: {short}!") == "short"
    assert overlaps.find("What is it? What is it? What is it? What is it?") is None


def test_ngrams_that_would_match_common_phrases_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        Overlaps(3)


@given(st.lists(st.text(alphabet="abc xyz", max_size=60), max_size=4), st.text(alphabet="abc xyz", max_size=60))
def test_a_text_is_found_exactly_if_it_shares_a_run(texts: list[str], text: str) -> None:
    size = 8
    overlaps = Overlaps(size)
    overlaps.add("set", texts)

    def runs(of: str, length: int) -> set[tuple[str, ...]]:
        spelled = words_of(of)
        return {tuple(spelled[at : at + length]) for at in range(len(spelled) - length + 1)}

    expected = any(
        runs(text, min(size, len(words_of(other)))) & runs(other, min(size, len(words_of(other))))
        for other in texts
        if len(words_of(other)) >= MIN_WORDS
    )
    assert (overlaps.find(text) is not None) == expected
