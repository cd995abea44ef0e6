"""Programs per CPU-second in a sandbox, and how long one takes beside a plain `python program.py`.

CPU time is that of this process and of all processes that it started, keeper and sandboxes included, as a control group
(version 1, `cpuacct`, as root) counts it: other load on the machine does not count, and programs per CPU-second are
programs per second on one free core. The peer, a plain subprocess, shuts nothing in. Half a minute.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.load import shared_machine
from benchmarks.record import record
from farflung.errors import UserError
from farflung.sandbox.code.config import Backend, CodePoolConfig
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.code.tests import CallTest, CallTests, PytestTests, ScriptTest, ScriptTests

PEER = f"python {sys.version_info.major}.{sys.version_info.minor}, plain subprocess"
GROUP = Path("/sys/fs/cgroup/cpuacct/farflung-benchmark")
NUM_PROGRAMS = 60
WARM_UP = 5
SCRIPT = "import sys\nprint(sum(int(word) for word in sys.stdin.read().split()))\n"
FUNCTION = "def f(numbers):\n    return sorted(numbers)[::-1]\n"
TEST_FILE = "from solution import f\ndef test_a(): assert f([1, 3, 2]) == [3, 2, 1]\ndef test_b(): assert f([]) == []\n"
KINDS = {
    "script": (SCRIPT, ScriptTests(tests=[ScriptTest("1 2 3", "6")])),
    "calls": (FUNCTION, CallTests(function="f", tests=[CallTest(args=[[1, 3, 2]], expected=[3, 2, 1])] * 10)),
    "pytest": (FUNCTION, PytestTests(source=TEST_FILE, num_tests=2)),
}
BACKENDS: tuple[Backend, ...] = ("namespaces", "bubblewrap")


def run() -> None:
    """All figures."""
    _start_counting()
    try:
        _run()
    finally:
        _stop_counting()


def _run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(SCRIPT)
        plain_rate, plain_ms = _measure(lambda: _plain(path), lambda: None)
    for backend in BACKENDS:
        for kind, (program, tests) in KINDS.items():
            try:
                rate, latency_ms = _in_pool(backend, program, tests)
            except UserError as error:
                print(f"{backend}: {error}", flush=True)
                break
            has_peer = kind == "script"
            note = {"programs": NUM_PROGRAMS, "warm": 2, **shared_machine()}
            peer = PEER if has_peer else None
            record(
                f"sandbox/{backend}/{kind}/rate", rate, plain_rate if has_peer else None, peer, "programs/CPU-s", note
            )
            record(f"sandbox/{backend}/{kind}/latency", latency_ms, plain_ms if has_peer else None, peer, "ms", note)
            print(
                f"{backend} {kind}: {rate:.0f} programs/CPU-s, {latency_ms:.1f} ms (plain {plain_ms:.1f})", flush=True
            )


def _in_pool(backend: Backend, program: str, tests: ScriptTests | CallTests | PytestTests) -> tuple[float, float]:
    pool = CodePool(CodePoolConfig(backend=backend, num_warm=2))

    def once() -> None:
        report = pool.run(program, tests)
        assert report.decision.verdict == 1.0, report.decision

    return _measure(once, pool.close)


def _measure(once: Callable[[], None], close: Callable[[], None]) -> tuple[float, float]:
    """(programs per CPU-second, median milliseconds of one)."""
    for _ in range(WARM_UP):
        once()
    before_s, walls_s = _cpu_s(), []
    for _ in range(NUM_PROGRAMS):
        started_s = time.perf_counter()
        once()
        walls_s.append(time.perf_counter() - started_s)
    close()
    return NUM_PROGRAMS / (_cpu_s() - before_s), 1000 * statistics.median(walls_s)


def _plain(path: Path) -> None:
    done = subprocess.run([sys.executable, "-I", path], input=b"1 2 3", capture_output=True, check=True)
    assert done.stdout == b"6\n"


def _start_counting() -> None:
    """This process and all that it starts from now on, into a group that counts their CPU time."""
    GROUP.mkdir(exist_ok=True)
    (GROUP / "cgroup.procs").write_text("0")


def _stop_counting() -> None:
    (GROUP.parent / "cgroup.procs").write_text("0")
    while True:
        try:
            GROUP.rmdir()
        except OSError:
            time.sleep(0.1)  # a sandbox is still on its way out
        else:
            return


def _cpu_s() -> float:
    return int((GROUP / "cpuacct.usage").read_text()) / 1e9
