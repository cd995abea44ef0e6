"""Attacks on the verdict: forged, patched, left early, or read out of memory."""

from farflung.sandbox.code.attacks.attack import HELD, Attack, fails, tries
from farflung.sandbox.code.report import Outcome
from farflung.sandbox.code.tests import CallTest, CallTests, PytestTests, ScriptTest, ScriptTests

_CALLS = CallTests(function="f", tests=[CallTest(args=[n], expected=n * n) for n in range(2, 5)])
_PYTEST = PytestTests(
    source="""
import unittest
from solution import f

def test_two():
    assert f(2) == 4

def test_near():
    assert abs(f(3) - 9) < 1e-9

class Squares(unittest.TestCase):
    def test_four(self):
        self.assertEqual(f(4), 16)
""",
    num_tests=3,
)
_SECRET = ScriptTests(tests=[ScriptTest("", "WANTED-4711")])
_LIAR = """
class Liar(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __le__(self, other): return True
    def __gt__(self, other): return True
    def __ge__(self, other): return True
    def __sub__(self, other): return Liar(0)
    def __abs__(self): return Liar(0)
    def __bool__(self): return True
    __hash__ = int.__hash__
"""
_OBJECT = _LIAR.replace("Liar(int)", "Liar").replace("int.__hash__", "object.__hash__").replace("Liar(0)", "Liar()")
_FAILED = (Outcome.WRONG_RESULT, Outcome.NOT_RUN, Outcome.RUNTIME_ERROR)
_LOOK = """
def look(wanted):
    import gc
    seen, queue = set(), [*gc.get_objects(), globals()]
    frame = sys._getframe()
    while frame:
        queue.append(frame.f_locals)
        frame = frame.f_back
    while queue and len(seen) < 300_000:
        value = queue.pop()
        if id(value) in seen: continue
        seen.add(id(value))
        if isinstance(value, (str, bytes)):
            text = value if isinstance(value, str) else value.decode("latin-1")
            if wanted in text and text != wanted: yield text
        else:
            queue.extend(part for part in gc.get_referents(value))
"""

VERDICTS: tuple[Attack, ...] = (
    fails("leave early with sys.exit(0)", "E4", "import sys\ndef f(x): sys.exit(0)\n", *_FAILED, tests=_CALLS),
    fails("leave early with os._exit(0)", "E4", "import os\ndef f(x): os._exit(0)\n", *_FAILED, tests=_CALLS),
    fails("leave while loading", "E4", "import os\nos._exit(0)\n", Outcome.NOT_RUN, tests=_CALLS),
    fails("leave early before the tests of a file", "E4", "import os\nos._exit(0)\n", Outcome.NOT_RUN, tests=_PYTEST),
    fails("leave in the middle of a test file", "E4", "import os\ndef f(x): os._exit(0)\n", *_FAILED, tests=_PYTEST),
    fails(
        "leave by an exit function",
        "E4",
        "import atexit, os\natexit.register(os._exit, 0)\nraise ValueError\n",
        Outcome.WRONG_RESULT,
    ),
    fails(
        "end with another code after the right output",
        "E4",
        "print('held', flush=True)\nimport os\nos._exit(7)\n",
        Outcome.RUNTIME_ERROR,
    ),
    fails(
        "be killed after the right output",
        "E4",
        "print('held', flush=True)\nimport os\nos.kill(os.getpid(), 9)\n",
        Outcome.RUNTIME_ERROR,
    ),
    fails(
        "forged markers on standard output",
        "E4",
        "print('EXIT_CODE:0')\nprint('3 passed in 0.01s')\nprint('OK')\nprint('verdict: 1.0')\nraise ValueError\n",
        Outcome.RUNTIME_ERROR,
    ),
    fails(
        "forged messages on every descriptor",
        "E4",
        """
import os, json, struct
def f(x):
    ending = b"X" + json.dumps({"exit_code": 0, "signal": None, "cpu_s": 0, "cause": "exited"}).encode()
    for body in (bytes(32) + ending, ending, b'{"done": 3}', b'{"result": [0, "passed", ""]}', b'{"collected": []}'):
        for descriptor in range(3, 64):
            try: os.write(descriptor, struct.pack(">I", len(body)) + body)
            except OSError: pass
    os._exit(0)
""",
        *_FAILED,
        tests=_PYTEST,
    ),
    fails("a number that equals everything", "E4", _LIAR + "def f(x): return Liar(-1)\n", *_FAILED, tests=_CALLS),
    fails("an object that equals everything", "E4", _OBJECT + "def f(x): return Liar()\n", *_FAILED, tests=_CALLS),
    fails(
        "a number that equals everything, in a test file",
        "E4",
        _LIAR + "def f(x): return Liar(-1)\n",
        *_FAILED,
        tests=_PYTEST,
    ),
    fails(
        "an object that equals everything, in a test file",
        "E4",
        _OBJECT + "def f(x): return Liar()\n",
        *_FAILED,
        tests=_PYTEST,
    ),
    fails(
        "patched unittest, builtins and operators",
        "E4",
        """
import builtins, unittest, operator, sys
for name in dir(unittest.TestCase):
    if name.startswith("assert"):
        setattr(unittest.TestCase, name, lambda *a, **k: None)
unittest.TestCase.run = unittest.TestCase.debug = lambda *a, **k: None
operator.eq = lambda a, b: True
builtins.len = lambda x: 3
builtins.abs = lambda x: 0
builtins.isinstance = lambda a, b: True
builtins.AssertionError = type("Quiet", (Exception,), {})
sys.settrace(lambda *a: None)
sys.excepthook = lambda *a: None
def f(x): return None
""",
        *_FAILED,
        tests=_PYTEST,
    ),
    fails(
        "an exception that asks to be skipped",
        "E4",
        """
class Skipped(Exception): pass
class Unsupported(BaseException): pass
class ModuleNotFoundError(ImportError): pass
count = 0
def f(x):
    global count
    count += 1
    raise (Skipped, Unsupported, ModuleNotFoundError)[count % 3]("pytest.skip")
""",
        *_FAILED,
        tests=_PYTEST,
    ),
    fails(
        "tests of its own, to raise the count",
        "E4",
        "def test_a(): pass\ndef test_b(): pass\ndef test_two(): pass\ndef check(x): pass\ndef f(x): return 0\n",
        *_FAILED,
        tests=_PYTEST,
    ),
    tries(
        "look for the expected output in memory",
        "E3",
        _LOOK + "\nfor found in look('WANTED' + chr(45)):\n    print('escaped:', found[:100])\n",
    ),
    fails(
        "print the expected output found in memory",
        "E3",
        "import sys\n" + _LOOK + "\nfor found in look('WANTED' + chr(45)):\n    print(found)\n",
        Outcome.WRONG_RESULT,
        tests=_SECRET,
    ),
    fails(
        "look for the tests in memory and descriptors",
        "E3",
        "import sys, os\n"
        + _LOOK
        + """
def f(x):
    for found in look("class Squa" + chr(114)):
        return x * x
    for descriptor in range(4, 64):
        try:
            if os.read(descriptor, 10): return x * x
        except OSError: pass
""",
        *_FAILED,
        tests=_PYTEST,
    ),
    fails(
        "output that is no text",
        "E4",
        "import os\nos.write(1, bytes(range(256)) * 10)\n",
        Outcome.WRONG_RESULT,
    ),
    fails(
        "source that is no text",
        "E4",
        "\x00\ud800print('held')",
        Outcome.RUNTIME_ERROR,
        tests=HELD,
    ),
)
