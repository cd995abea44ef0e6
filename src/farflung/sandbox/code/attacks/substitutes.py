"""Attacks in which names and objects of the program answer in place of the tests: operators, builtins, modules, frames.

All of these programs are wrong, and each once won somewhere, or got away without a verdict.
"""

from farflung.sandbox.code.attacks.attack import Attack, fails
from farflung.sandbox.code.report import Outcome
from farflung.sandbox.code.tests import CallTest, CallTests, PytestTests

_SWEET = """
class Z:
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __radd__ = __mul__ = __pow__ = __mod__ = __truediv__ = __sub__
    def __abs__(self): return 0.0
    def __round__(self, digits): return 0.5
    def __contains__(self, item): return True
    def __iter__(self): return iter([1])
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __le__ = __lt__ = __ge__ = __gt__ = __eq__
    def __hash__(self): return hash(0.25)
    def __float__(self): return 0.5
def f(*args): return Z()
"""
_SAY = """
import os, struct
def say(body): os.write(3, struct.pack(">I", len(body)) + body)
"""
_FAILED = (Outcome.WRONG_RESULT, Outcome.NOT_RUN, Outcome.RUNTIME_ERROR, Outcome.OUTPUT_LIMIT)

IN_TESTS: tuple[tuple[str, str, str], ...] = (
    # name, program, body of the test
    ("an answer that equals everything", _SWEET, "assert f(2) == 0.25"),
    ("an answer that differs from nothing", _SWEET, "assert not f(2) != 0.25"),
    ("an answer that is less and more than everything", _SWEET, "assert 0.2 < f(2) < 0.3"),
    ("an answer of which nothing is left", _SWEET, "assert abs(f(3.5) - 0.25) < 1e-6"),
    ("an answer that leaves nothing of another", _SWEET, "assert abs(0.25 - f(3.5)) < 1e-6"),
    ("an answer that multiplies to nothing", _SWEET, "assert (f(2) - 1.4142) ** 2 < 1e-6"),
    ("an answer with remainders of its own", _SWEET, "assert f(7) % 2 == 0.0 == 8 - f(7)"),
    ("an answer that is rounded to its liking", _SWEET, "assert round(f(7), 2) == 0.5"),
    ("an answer that sums to nothing", _SWEET, "assert sum([f(1), f(2)]) == 0.0"),
    ("an answer that holds everything", _SWEET, "assert 5 in f(3)"),
    ("an answer that is in everything", _SWEET, "assert f(3) in (0.25, 2) and f(3) in {0.25} and f(3) in {0.25: 1}"),
    (
        "an answer that is close to everything",
        _SWEET,
        "import unittest\n    unittest.TestCase().assertAlmostEqual(f(3.5), 0.25)",
    ),
    (
        "abs of its own",
        "def f(x): return 12345.0\ndef abs(x): return 0",
        "assert abs(f(3.5) - 0.5) < 1e-6",
    ),
    ("tuple of its own", "def f(x): return [7]\ndef tuple(x): return 1", "assert tuple(f(1)) == tuple([1, 2])"),
    ("set of its own", "def f(x): return [7]\ndef set(x): return 1", "assert set(f(1)) == set((4, 5))"),
    (
        "zip of its own",
        "def f(x): return [9]\ndef zip(*a): return []",
        "for a, b in zip(f([2, 1]), [1]): assert a == b",
    ),
    ("all of its own", "def f(x): return 9\ndef all(x): return True", "assert all([f(2) == 4])"),
    (
        "isinstance of its own",
        "def f(x): return 0\ndef isinstance(*a): return True",
        "r = f(1); assert isinstance(r, int) and r == 2",
    ),
    (
        "ValueError of its own",
        "def f(x): return 7\nValueError = Exception",
        "import pytest\n    with pytest.raises(ValueError): f({}['x'])",
    ),
    (
        "AssertionError of its own",
        "class AssertionError(Exception): pass\ndef f(x): return 7",
        "try: assert f(2) == 4\n    except ValueError: pass",
    ),
    (
        "a module of its own in place of one that the tests import",
        "def f(x): return 7\nclass math:\n    def isclose(*a): return True\n",
        "assert math.isclose(f(2), 4)",
    ),
    (
        "a function of its own in place of one that the tests import",
        "def f(x): return 7\ndef close_enough(*a): return True\n",
        "assert close_enough(f(2), 4)",
    ),
    (
        "a function of its own in place of one of a whole module",
        "def f(x): return 7\ndef eq(*a): return True\n",
        "assert eq(f(2), 4)",
    ),
    ("a broken frame", "import os\nos.write(3, b'x' * 8)\ndef f(x): return 2", "assert f(1) == 2"),
    (
        "a forged list of names",
        _SAY
        + """
say(b'{"loaded": {"f": {"callable": 0}, "abs": {"callable": 0}, "__builtins__": {"value": {"d": []}}, '
    b'"__class__": {"callable": 0}, "__getattr__": {"callable": 0}, "test_it": {"callable": 0}}}')
for _ in range(9): say(b'{"value": true, "changed": []}')
""",
        "assert f(2) == 4",
    ),
    (
        "a list of names that is none",
        _SAY + 'say(b\'{"loaded": {"f": [], "g": {}, "h": {"x": 1, "y": 2}}}\')\n',
        "assert f(2) == 4",
    ),
    (
        "forged answers ahead of the questions, for arguments that are not there",
        _SAY + 'for n in (0, 5, -1): say(b\'{"value": {"r": 99999}, "changed": [[%d, [1]]]}\' % n)\n',
        "x = [2]; assert f(x) == 4",
    ),
    (
        "outcomes among the answers",
        _SAY
        + """
say(b'{"loaded": {"f": {"callable": 0}}}')
for body in (b'{"result": [0, "passed", ""]}', b'{"done": 1}', b'{"gone": false}', b'{"cannot_run": "x"}'): say(body)
""",
        "assert f(2) == 4",
    ),
    (
        "names whose keys all have the same hash",
        "M = {i * (2**61 - 1) for i in range(1, 3000)}\ndef f(x): return 2",
        "assert f(1) == 2",
    ),
    (
        "an exception with the name of another",
        "class ModuleNotFoundError(Exception): pass\ndef f(x): raise ModuleNotFoundError('numpy')",
        "assert f(1) == 2",
    ),
)
HEAD = "import math\nfrom math import isclose as close_enough\nfrom operator import *\n"
_HEAD = HEAD + "from solution import *\n"


def facing(body: str, head: str = _HEAD) -> PytestTests:
    """A test file with one test."""
    return PytestTests(source=f"{head}def test_it():\n    {body}\n", num_tests=1)


_OPERATORS = {"add": 5, "mod": 2, "pow": 8, "len": None, "contains": None, "()": None, ".": None, "eq": False}

SUBSTITUTES: tuple[Attack, ...] = (
    *(fails(name, "E4", program, *_FAILED, tests=facing(body)) for name, program, body in IN_TESTS),
    *(
        fails(
            f"an operator in place of a function: {name}",
            "E4",
            "pass",
            *_FAILED,
            tests=CallTests(function=name, tests=[CallTest(args=[2, 3], expected=wanted)]),
        )
        for name, wanted in _OPERATORS.items()
    ),
)
