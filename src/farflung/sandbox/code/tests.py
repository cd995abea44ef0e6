"""The tests of one task: three kinds, each a record. What is expected in a script or a call never enters a sandbox."""

from typing import Any, Literal, TypeAlias

import msgspec

MAX_TESTS_BYTES = 1 << 26
MAX_TESTS = 10_000


class ScriptTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The program reads `stdin`, must print `stdout` and end with code 0."""

    stdin: str
    stdout: str


class ScriptTests(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="script"
):
    """Whole programs, a fresh process for each test."""

    tests: list[ScriptTest]
    compare: Literal["lines", "tokens", "exact"] = "lines"
    """`lines`: ends of lines and of the text do not count; `tokens`: words between blanks; `exact`: every character."""
    tolerance: float = 0.0
    """For `tokens`: largest difference, absolute or relative, of two numbers. Declared, never assumed."""


class CallTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`function(*args, **kwargs)` must equal `expected`."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    expected: Any


class CallTests(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="calls"):
    """One function, or a method of a class without arguments ("Solution.two_sum"), loaded once and called in order."""

    function: str
    tests: list[CallTest]
    tagged: bool = False
    """Values are written as `inside.codec` writes them, for tuples, sets and the like; else plain JSON."""
    tuples_are_lists: bool = True
    """A tuple equals a list of the same parts: JSON knows no tuples."""
    tolerance: float = 0.0
    """Largest difference, absolute or relative, of two floats."""


class PytestTests(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="pytest"
):
    """Test functions, `TestCase` classes, or asserts, which reach the program as the module `solution`.

    They run in a sandbox of their own; the program runs in another one and sees calls, never tests.
    """

    source: str
    num_tests: int | None = None
    """How many there are; None = as many as are found. Another number found is an error of the tests."""
    entry: str | None = None
    """Name of the function that is handed to `check(candidate)`, if `source` defines one (HumanEval)."""


CodeTests: TypeAlias = ScriptTests | CallTests | PytestTests

_DECODER = msgspec.json.Decoder(ScriptTests | CallTests | PytestTests)


class TestsUnreadable(ValueError):
    """Nothing can be graded against these tests."""

    __test__ = False


def read_tests(data: bytes) -> CodeTests:
    """Parse JSON with a field `kind`. Raises `TestsUnreadable`."""
    if len(data) > MAX_TESTS_BYTES:
        raise TestsUnreadable(f"the tests have {len(data)} bytes; at most {MAX_TESTS_BYTES} are read")
    try:
        tests: CodeTests = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise TestsUnreadable(f"the tests cannot be read: {error}") from error
    if isinstance(tests, PytestTests):
        if tests.num_tests is not None and tests.num_tests < 1:
            raise TestsUnreadable(f"num_tests is {tests.num_tests}; it must be at least 1")
    elif not 1 <= len(tests.tests) <= MAX_TESTS:
        raise TestsUnreadable(f"there are {len(tests.tests)} tests; there must be 1 to {MAX_TESTS}")
    return tests


def write_tests(tests: CodeTests) -> bytes:
    """The inverse of `read_tests`."""
    return msgspec.json.encode(tests)
