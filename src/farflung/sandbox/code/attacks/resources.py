"""Attacks on memory, disk, time and output."""

from farflung.sandbox.code.attacks.attack import Attack, fails, tries
from farflung.sandbox.code.report import Outcome
from farflung.sandbox.code.tests import CallTest, CallTests

_OVER = (Outcome.RUNTIME_ERROR, Outcome.MEMORY_LIMIT)
_ONE_CALL = CallTests(function="f", tests=[CallTest(args=[1], expected=[1])])

RESOURCES: tuple[Attack, ...] = (
    fails("memory in one piece", "E5", "x = bytearray(1 << 31)\nprint('held')\n", *_OVER),
    fails("memory bit by bit", "E5", "x = []\nwhile True: x.append(bytearray(1 << 20))\n", *_OVER),
    fails(
        "memory of many processes together",
        "E5",
        """
import os, time
for _ in range(12):
    if os.fork() == 0:
        x = bytearray(100 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        time.sleep(5)
        os._exit(0)
x = bytearray(100 << 20)
for i in range(0, len(x), 4096): x[i] = 1
codes = [os.wait()[1] for _ in range(12)]
print("held" if not any(codes) else "")
""",
        Outcome.WRONG_RESULT,
        *_OVER,
        Outcome.TIME_LIMIT,
        needs_cgroup=True,
    ),
    tries(
        "memory that no address space counts",
        "E5",
        """
attempt("memory file", lambda: os.memfd_create("x"))
attempt("shared memory", lambda: kernel(29, 194, 0, 1 << 30, 0o1600))
pipes = []
try:
    while True:
        pipes.append(os.pipe())
except OSError:
    pass
if len(pipes) > 40:
    print("escaped:", len(pipes))
for pair in pipes:
    os.close(pair[0]); os.close(pair[1])
""",
    ),
    tries(
        "fill the disk",
        "E5",
        """
total = 0
try:
    for i in range(100):
        with open(f"f{i}", "wb") as file:
            for _ in range(3):
                total += file.write(bytes(1 << 20))
                file.flush()
except OSError:
    pass
if total > 9 << 20:
    print("escaped:", total)
""",
    ),
    tries(
        "one huge file",
        "E5",
        """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def write():
    with open("x", "wb") as file:
        file.seek(6 << 20)
        file.write(b"x")
        file.flush()
attempt("6 MiB", write)
attempt("sparse", lambda: os.truncate("x", 1 << 40))
""",
    ),
    tries(
        "endless numbers of files",
        "E5",
        """
count = 0
try:
    while count < 100_000:
        os.close(os.open(f"{count}", os.O_CREAT))
        count += 1
except OSError:
    pass
if count > 5000:
    print("escaped:", count)
""",
    ),
    fails("CPU", "E5", "while True: pass\n", Outcome.TIME_LIMIT),
    fails(
        "CPU, deaf to signals",
        "E5",
        """
import signal
for n in range(1, 32):
    try: signal.signal(n, signal.SIG_IGN)
    except OSError: pass
while True: pass
""",
        Outcome.TIME_LIMIT,
    ),
    fails("a tower of powers", "E5", "print(9 ** 9 ** 9)\n", Outcome.TIME_LIMIT, *_OVER),
    fails(
        "a regular expression without end",
        "E5",
        "import re\nre.match('(a+)+$', 'a' * 60 + 'b')\n",
        Outcome.TIME_LIMIT,
    ),
    fails("sleep", "E5", "import time\ntime.sleep(3600)\n", Outcome.TIME_LIMIT),
    fails("wait for input that never comes", "E5", "import signal\nsignal.pause()\n", Outcome.TIME_LIMIT),
    fails("flood of output", "E4", "while True: print('held' * 1000)\n", Outcome.OUTPUT_LIMIT),
    fails("flood of errors", "E4", "import sys\nwhile True: sys.stderr.write('x' * 1000)\n", Outcome.OUTPUT_LIMIT),
    fails("one line without end", "E4", "import os\nwhile True: os.write(1, b'0' * 65536)\n", Outcome.OUTPUT_LIMIT),
    fails(
        "deep recursion",
        "E5",
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(n): return f(n + 1) + 1\nf(0)\n",
        *_OVER,
        Outcome.TIME_LIMIT,
    ),
    fails(
        "recursion in the C library",
        "E5",
        "import sys\nsys.setrecursionlimit(10 ** 9)\nx = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)\n",
        *_OVER,
        Outcome.TIME_LIMIT,
    ),
    fails(
        "zip bomb",
        "E5",
        """
import zlib
bomb = zlib.compressobj(9)
packed = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(400)) + bomb.flush()
print(len(zlib.decompress(packed)))
""",
        *_OVER,
        Outcome.TIME_LIMIT,
    ),
    fails(
        "pickle bomb",
        "E5",
        """
import pickle
class Bomb:
    def __reduce__(self): return (bytearray, (1 << 31,))
pickle.loads(pickle.dumps(Bomb()))
print("held")
""",
        *_OVER,
    ),
    fails(
        "a result without end",
        "E4",
        "def f(x): return list(range(10 ** 6))\n",
        Outcome.OUTPUT_LIMIT,
        tests=_ONE_CALL,
    ),
    fails(
        "a result that is nested without end",
        "E4",
        "def f(x):\n    y = []\n    for _ in range(50_000): y = [y]\n    return y\n",
        Outcome.RUNTIME_ERROR,
        tests=_ONE_CALL,
    ),
    fails(
        "a result that contains itself",
        "E4",
        "def f(x):\n    y = []\n    y.append(y)\n    return y\n",
        Outcome.RUNTIME_ERROR,
        tests=_ONE_CALL,
    ),
    fails(
        "keys with equal hashes, against the comparison",
        "E5",
        "def f(x): return {n * (2 ** 61 - 1) for n in range(300)}\n",
        Outcome.WRONG_RESULT,
        tests=CallTests(function="f", tests=[CallTest(args=[1], expected={"s": list(range(300))})], tagged=True),
    ),
)
