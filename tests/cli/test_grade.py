"""`farflung grade math`: one pair, files, lines that are none."""

import json
from pathlib import Path

import pytest

from farflung.cli.grade_file import MAX_LINE_BYTES
from farflung.cli.main import main

pytest.importorskip("math_verify")


def test_one_pair_gives_the_verdict_and_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", "math", "--gold", "1/2", "--answer", "0.5"]) == 0
    assert capsys.readouterr().out == "1  same_number\n"


def test_json_has_verdicts_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    for gold, answer, verdict in (("1/2", "0.5", 1), ("1/2", "0.6", 0), (r"\frac{", "1", None)):
        assert main(["grade", "math", f"--gold={gold}", f"--answer={answer}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["verdict"] == verdict


def test_what_the_rules_leave_open_is_asked_unless_exact(capsys: pytest.CaptureFixture[str]) -> None:
    pair = ["grade", "math", "--gold", r"\sin(2x)", "--answer", r"2\sin x\cos x"]
    assert main(pair) == 0
    assert main([*pair, "--exact"]) == 0
    assert capsys.readouterr().out.split("\n")[0] == "1  second_opinion_equal"


def test_a_file_gives_a_line_for_each_pair_and_names_what_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        b'{"gold": "1", "answer": "1", "label": 1}',
        b"",
        b"nope",
        b'{"gold": 1, "answer": "1"}',
        b'{"gold": "50", "answer": "50%", "policy": {"percent": "ignore"}}',
        b'{"gold": "50", "answer": "50%"}',
        b'{"gold": "1", "answer": "1", "policy": {"percnt": 1}}',
        b'{"gold": "\\\\frac{", "answer": "1"}',
        b"\xff\xfe",
        b'{"gold": "\\ud800", "answer": "1"}',
        b'"' + b"x" * (MAX_LINE_BYTES + 10) + b'"',
        b'{"gold": "2", "answer": "2"}',
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b"\n".join(lines))
    assert main(["grade", "math", "--file", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    verdicts = {entry["line"]: entry["verdict"] for entry in map(json.loads, out.splitlines())}
    bad = [int(line.removeprefix(f"{path}:").partition(":")[0]) for line in err.splitlines()[:-1]]
    assert {line: verdicts[line] for line in (1, 5, 6, 8, 12)} == {1: 1, 5: 1, 6: 0, 8: None, 12: 1}
    assert sorted([*verdicts, *bad]) == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert {3, 4, 7, 9, 11} <= set(bad)
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("right 3, wrong 1, not gradable ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--gold", "1"], "give --gold and --answer, or --file"),
        ([], "give --gold and --answer, or --file"),
        (["--gold", "1", "--answer", "1", "--file", "x"], "give --gold and --answer, or --file"),
        (["--file", "no/such"], "no/such cannot be read: No such file"),
        (["--file", "."], ". cannot be read: Is a directory"),
        (["--gold", "1", "--answer", "1", "--policy", "percent"], "--policy percent: write KEY=VALUE"),
        (["--gold", "1", "--answer", "1", "--policy", "percent=x"], 'percent is "x"'),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", "math", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err
