"""Tests of a task as bytes."""

import pytest

from farflung.sandbox.code.tests import (
    CallTest,
    CallTests,
    PytestTests,
    ScriptTest,
    ScriptTests,
    TestsUnreadable,
    read_tests,
    write_tests,
)


@pytest.mark.parametrize(
    "tests",
    [
        ScriptTests(tests=[ScriptTest("1", "2")], compare="tokens", tolerance=1e-6),
        CallTests(function="f", tests=[CallTest(args=[[1]], kwargs={"x": None}, expected={"a": 1})]),
        PytestTests(source="def test_a(): pass", num_tests=1, entry="f"),
    ],
)
def test_every_kind_comes_back(tests: ScriptTests | CallTests | PytestTests) -> None:
    assert read_tests(write_tests(tests)) == tests


def test_the_bytes_of_each_kind() -> None:
    assert read_tests(b'{"kind":"script","tests":[{"stdin":"1","stdout":"2"}]}') == ScriptTests(
        tests=[ScriptTest("1", "2")]
    )
    assert read_tests(b'{"kind":"calls","function":"f","tests":[{"args":[1],"expected":2}]}') == CallTests(
        function="f", tests=[CallTest(args=[1], expected=2)]
    )
    assert read_tests(b'{"kind":"pytest","source":"assert f(1)"}') == PytestTests(source="assert f(1)")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"kind":"shell"}', "cannot be read: Invalid value 'shell'"),
        (b'{"kind":"script","tests":[{"stdin":"1"}]}', "missing required field `stdout`"),
        (b'{"kind":"script","tests":[],"extra":1}', "unknown field `extra`"),
        (b'{"kind":"script","tests":[]}', "there are 0 tests"),
        (b'{"kind":"pytest","source":"","num_tests":0}', "num_tests is 0"),
        (b'{"kind":"calls","function":"f","tests":[{"expected":' + b"[" * 10_000, "cannot be read"),
        (b"\xff", "cannot be read"),
    ],
)
def test_other_bytes_are_refused_with_the_reason(data: bytes, sentence: str) -> None:
    with pytest.raises(TestsUnreadable, match=sentence.replace("`", ".")):
        read_tests(data)
