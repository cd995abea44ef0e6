"""One attack: a program, the tests that it faces, and the outcomes that mean that the walls held."""

from dataclasses import dataclass

from farflung.sandbox.code.report import CodeReport, Outcome
from farflung.sandbox.code.tests import CodeTests, ScriptTest, ScriptTests
from farflung.sandbox.isolation.limits import MIB, Limits

LIMITS = Limits(
    test_cpu_s=1.0,
    test_wall_s=6.0,
    total_wall_s=18.0,
    memory_bytes=192 * MIB,
    output_bytes=1 << 16,
    message_bytes=1 << 18,
    max_processes=16,
    max_open_files=64,
    file_bytes=4 * MIB,
    disk_bytes=8 * MIB,
)
"""Small ones: an attack that succeeds should not hurt the machine that it is tried on."""

HELD = ScriptTests(tests=[ScriptTest("", "held")])
"""The program tries, and prints what it got; nothing, and then "held", when the walls held."""

PRELUDE = """
import os, sys
def attempt(what, action):
    try:
        found = action()
    except Exception:
        return
    print("escaped:", what, repr(found)[:100])
def kernel(x86_64, aarch64, *arguments):
    import ctypes, platform
    number = x86_64 if platform.machine() == "x86_64" else aarch64
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, *arguments)
    if result < 0 and ctypes.get_errno() in (1, 38):
        raise OSError("refused before the kernel looked at it")
    return result, ctypes.get_errno()
"""
END = '\nprint("held")\n'


@dataclass(frozen=True, slots=True)
class Bait:
    """What an attack may look for outside. All of it really exists."""

    port: int
    """Something listens there, on 127.0.0.1."""
    secret: str
    """Path of a file that only its owner may read."""
    pid: int
    """A process outside."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`{port}`, `{secret}` and `{pid}` in the program are filled in from a `Bait`."""

    name: str
    threat: str
    program: str
    tests: CodeTests = HELD
    allowed: frozenset[Outcome] = frozenset({Outcome.PASSED})
    """Outcomes of the first test that is not passed, or `PASSED` if all must pass."""
    needs_cgroup: bool = False
    """Only held where control groups can be made."""

    def source(self, bait: Bait) -> str:
        """The program as it is run."""
        text = self.program.replace("{port}", str(bait.port))
        return text.replace("{secret}", bait.secret).replace("{pid}", str(bait.pid))

    def held(self, report: CodeReport) -> bool:
        """Whether the walls held. A run without a verdict shows nothing, so it does not count."""
        if report.decision.verdict is None:
            return False
        if Outcome.PASSED in self.allowed and report.decision.verdict == 1.0:
            return True
        return report.decision.verdict == 0.0 and report.decision.rule in self.allowed - {Outcome.PASSED}


def tries(name: str, threat: str, body: str) -> Attack:
    """An attack that looks for a hole by itself and says what it found."""
    return Attack(name, threat, PRELUDE + body + END)


def fails(
    name: str, threat: str, program: str, *outcomes: Outcome, tests: CodeTests = HELD, needs_cgroup: bool = False
) -> Attack:
    """An attack that must end in one of these outcomes."""
    return Attack(name, threat, program, tests, frozenset(outcomes), needs_cgroup)
