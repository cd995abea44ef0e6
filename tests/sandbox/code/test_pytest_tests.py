"""Test files: tests in one sandbox, the program in another."""

from dataclasses import replace

import pytest

from farflung.sandbox.code.attacks.attack import LIMITS
from farflung.sandbox.code.attacks.substitutes import HEAD, IN_TESTS, facing
from farflung.sandbox.code.config import CodePoolConfig
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.code.report import Outcome
from farflung.sandbox.code.tests import PytestTests

STACK = """
class Empty(LookupError): pass
class Stack:
    limit = 3
    def __init__(self, items=()): self.items = list(items)
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        if not self.items: raise Empty("nothing there")
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __contains__(self, item): return item in self.items
    def __eq__(self, other): return self.items == other.items
    def __add__(self, other): return Stack(self.items + other.items)
def sort(items): items.sort()
def fill(table, key): table[key] = {key}
def squares(n):
    for i in range(n): yield i * i
VERSION = (1, 2)
"""


def verdict(pool: CodePool, source: str, program: str = STACK, **options: object) -> tuple[float | None, str]:
    report = pool.run(program, PytestTests(source=source, **options))  # type: ignore[arg-type]
    return report.decision.verdict, report.decision.rule


@pytest.mark.parametrize(
    "body",
    [
        "s = Stack(); s.push(1).push('x'); assert len(s) == 2 and s.items == [1, 'x'] and s.pop() == 'x'",
        "assert list(Stack((1, 2))) == [1, 2] and 2 in Stack([2]) and isinstance(Stack(), Stack)",
        "assert Stack([1]) + Stack([2]) == Stack([1, 2]) and Stack([1]) != Stack([2]) and Stack.limit == 3",
        "x = [3, 1, 2]; sort(x); assert x == [1, 2, 3]",
        "d = {1: {1}}; fill(d, 2); assert d == {1: {1}, 2: {2}}",
        "assert list(squares(4)) == [0, 1, 4, 9] and solution.VERSION == (1, 2)",
        "import pytest\n    with pytest.raises(Empty, match='no') as c: Stack().pop()\n    assert c.value.args",
        "import pytest\n    with pytest.raises(LookupError): Stack().pop()",
        "import pytest\n    with pytest.raises(ValueError): Stack([1]).items.index(3)",
        "import pytest\n    assert [0.1 + 0.2, 1] == pytest.approx([0.3, 1])",
    ],
)
def test_what_tests_usually_do_works_across_the_wall(pool: CodePool, body: str) -> None:
    source = f"import solution\nfrom solution import *\ndef test_it():\n    {body}\n"
    assert verdict(pool, source, num_tests=1) == (1.0, "all_tests_passed")


def test_functions_classes_fixtures_rows_and_unittest_are_collected_and_counted(pool: CodePool) -> None:
    source = """
import unittest, pytest
from solution import Stack, sort
@pytest.fixture
def full(): return Stack([1, 2])
def test_fixture(full): assert len(full) == 2
@pytest.mark.parametrize("a, b", [(1, 2), (3, 4)])
@pytest.mark.parametrize("c", [5, 6, 7])
def test_rows(a, b, c): assert a < b < c
class TestGroup:
    def setup_method(self): self.stack = Stack()
    def test_one(self): assert len(self.stack) == 0
    def helper(self): assert False
class Cases(unittest.TestCase):
    def setUp(self): self.stack = Stack([1])
    def test_pop(self): self.assertEqual(self.stack.pop(), 1)
    def test_empty(self):
        with self.assertRaises(LookupError): Stack().pop()
"""
    report = pool.run(STACK, PytestTests(source=source, num_tests=10))
    assert (report.decision.verdict, report.num_passed) == (1.0, 10)
    assert report.outcomes[1].name == "test_rows[0]"


@pytest.mark.parametrize(
    "source", ["assert square(2) == 4\nassert square(3) == 9", "def check(c):\n    assert c(3) == 9"]
)
def test_bare_asserts_and_check_functions_are_tests(pool: CodePool, source: str) -> None:
    assert verdict(pool, source, "def square(x): return x * x", entry="square") == (1.0, "all_tests_passed")
    assert verdict(pool, source, "def square(x): return x + x", entry="square") == (0.0, "wrong_result")
    assert verdict(pool, source, "def other(x): return x * x", entry="square")[0] == 0.0


def test_the_entry_is_the_programs_even_where_the_file_has_a_stub_of_it(pool: CodePool) -> None:
    source = "def square(x):\n    ...\ndef check(candidate):\n    assert candidate(3) == square(3) == 9"
    assert verdict(pool, source, "def square(x): return x * x", entry="square") == (1.0, "all_tests_passed")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("def test_a(: pass", {}),
        ("import numpy_of_another_machine\ndef test_a(): pass", {}),
        ("def test_a():\n    import numpy_of_another_machine", {}),
        ("def test_a(): assert 1", {"num_tests": 2}),
        ("import pytest\ndef test_a(): pytest.importorskip('x')", {}),
        ("def test_a(): apply(lambda x: x)", {}),
        ("def test_a(tmp_path): pass", {}),
        ("raise RuntimeError", {}),
        ("import os\nos._exit(0)", {}),
    ],
)
def test_tests_that_cannot_be_run_are_nobodys_zero(pool: CodePool, source: str, options: dict[str, int]) -> None:
    assert verdict(pool, source, "def apply(f): return f(1)", **options) == (None, "tests_unreadable")


def test_a_skipped_test_did_not_run(pool: CodePool) -> None:
    source = "import pytest\ndef test_a(): pytest.skip('no')\ndef test_b(): pass"
    report = pool.run("x = 1", PytestTests(source=source))
    assert [test.outcome for test in report.outcomes] == [Outcome.NOT_RUN, Outcome.PASSED]
    assert report.decision.verdict == 0.0


def test_a_program_that_leaves_has_passed_nothing_even_if_the_test_swallows_it(pool: CodePool) -> None:
    source = "from solution import f\ndef test_a():\n    try: f()\n    except BaseException: pass\ndef test_b(): pass"
    report = pool.run("import os\ndef f(): os._exit(0)", PytestTests(source=source))
    assert [test.outcome for test in report.outcomes] == [Outcome.NOT_RUN] * 2


def test_a_call_without_end_is_a_time_limit() -> None:
    source = "from solution import f\ndef test_a(): f()\ndef test_b(): f()"
    limits = replace(LIMITS, test_cpu_s=1.5, test_wall_s=1.5)
    with CodePool(CodePoolConfig(limits=limits)) as pool:
        report = pool.run("def f():\n    while True: pass", PytestTests(source=source))
    assert report.outcomes[0].outcome == Outcome.TIME_LIMIT


@pytest.mark.parametrize(("program", "body"), [case[1:] for case in IN_TESTS], ids=[case[0] for case in IN_TESTS])
def test_names_and_objects_of_the_program_decide_nothing(pool: CodePool, program: str, body: str) -> None:
    """The corpus has them with `from solution import *`; here the names are in the file by themselves."""
    assert pool.run(program, facing(body, HEAD)).decision.verdict == 0.0


def test_a_name_of_the_program_that_is_a_builtin_can_be_asked_for(pool: CodePool) -> None:
    source = "from solution import abs as own\ndef test_it(): assert own(-3) == 3 and abs(-4) == 4"
    assert verdict(pool, source, "def abs(x): return 3") == (1.0, "all_tests_passed")
    check = "def check(candidate): assert candidate(-3) == 3"
    assert verdict(pool, check, "def abs(x): return 3", entry="abs") == (1.0, "all_tests_passed")
