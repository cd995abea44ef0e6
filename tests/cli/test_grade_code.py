"""`farflung grade code` and `farflung sandbox doctor` from outside."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from farflung.cli import main, sandbox
from farflung.sandbox.code.doctor import Diagnosis, Trial, Wall


def run(*words: str | Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    code = main.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def files(tmp_path: Path) -> Path:
    tests = {"kind": "calls", "function": "f", "tests": [{"args": [n], "expected": n * n} for n in range(20)]}
    (tmp_path / "tests.json").write_text(json.dumps(tests))
    (tmp_path / "right.py").write_text("def f(x): return x * x\n")
    (tmp_path / "wrong.py").write_text("def f(x): return x + x\n")
    return tmp_path


def test_a_right_program_is_1(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("grade", "code", "--tests", files / "tests.json", "--program", files / "right.py")
    assert run(*words, capsys=capsys) == (0, "1  all_tests_passed  (20 tests)\n", "")


def test_a_wrong_program_is_0_with_the_first_failures(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("grade", "code", "--tests", files / "tests.json", "--program", files / "wrong.py")
    code, out, _ = run(*words, capsys=capsys)
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "0  wrong_result  (2 of 20 tests passed; test 1: it gave 2)")
    assert (lines[1], len(lines), lines[-1]) == ("   test 1: wrong_result  it gave 2", 12, "   and 8 more")


def test_an_object_has_every_test_and_says_what_shut_the_program_in(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("grade", "code", "--tests", files / "tests.json", "--program", files / "right.py", "--json", "--cpu", "2")
    found = json.loads(run(*words, capsys=capsys)[1])
    assert (found["verdict"], found["rule"], len(found["tests"])) == (1, "all_tests_passed", 20)
    assert found["sandbox"] in ("bubblewrap", "namespaces")
    assert found["tests"][0] == {"name": "test 0", "outcome": "passed", "detail": ""}


def test_a_users_own_code_may_run_without_walls_and_the_user_is_told(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("grade", "code", "--tests", files / "tests.json", "--program", files / "right.py", "--unsafe-no-sandbox")
    code, out, err = run(*words, capsys=capsys)
    assert (code, out[:1]) == (0, "1")
    assert "without a sandbox" in err


@pytest.mark.parametrize(
    ("tests", "options", "sentence"),
    [
        ("{}", (), "the tests cannot be read"),
        (None, (), "none.json cannot be read: No such file"),
        ('{"kind":"pytest","source":"assert f(0) == 0"}', ("--cpu", "-1"), "limit test_cpu_s is -1.0"),
    ],
)
def test_wrong_input_is_one_sentence(
    files: Path, capsys: pytest.CaptureFixture[str], tests: str | None, options: tuple[str, ...], sentence: str
) -> None:
    path = files / "none.json"
    if tests is not None:
        path.write_text(tests)
    code, out, err = run("grade", "code", "--tests", path, "--program", files / "right.py", *options, capsys=capsys)
    assert (code, out) == (2, "")
    assert sentence in err


def _diagnosis(*held: bool) -> Iterator[Diagnosis | Trial]:
    trials = tuple(Trial(f"attack {n}", "E5", each, n < 2, "detail") for n, each in enumerate(held))
    yield from trials
    yield Diagnosis("namespaces", (Wall("landlock", False, "not in this kernel"),), trials)


@pytest.mark.parametrize(
    ("held", "code", "last"),
    [((True, True), 0, "2 of 2 attacks"), ((True, False), 1, "1 of 2 attacks"), ((True, True, False), 0, "2 of 3")],
)
def test_the_doctor_ends_with_1_when_something_that_should_hold_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], held: tuple[bool, ...], code: int, last: str
) -> None:
    monkeypatch.setattr(sandbox, "examine", lambda _: _diagnosis(*held))
    found = run("sandbox", "doctor", capsys=capsys)
    assert (found[0], last in found[1].splitlines()[-1]) == (code, True)
    assert "not in this kernel" in found[1]
    assert ("NOT STOPPED: detail" in found[1]) == (code == 1)
    found = run("sandbox", "doctor", "--json", capsys=capsys)
    assert (found[0], json.loads(found[1])["is_sound"]) == (code, code == 0)
