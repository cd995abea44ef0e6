"""`farflung grade code`: does this program pass these tests?"""

import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from farflung.cli.grade_output import as_json, as_text
from farflung.errors import UserError
from farflung.sandbox.code.config import Backend, CodePoolConfig
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.code.report import CodeReport, Outcome
from farflung.sandbox.code.tests import MAX_TESTS_BYTES, TestsUnreadable, read_tests
from farflung.sandbox.isolation.limits import Limits

_WARNING = "warning: this program runs without a sandbox, with all rights that you have\n"
_MAX_PROGRAM_BYTES = 1 << 20
_MAX_SHOWN = 10


def run_grade_code(arguments: Namespace) -> int:
    """Print the verdict, and which tests did not pass."""
    program = _read(Path(arguments.program), _MAX_PROGRAM_BYTES).decode("utf-8", "replace")
    try:
        tests = read_tests(_read(Path(arguments.tests), MAX_TESTS_BYTES))
        limits = _limits(arguments.cpu)
    except (TestsUnreadable, ValueError) as error:
        raise UserError(str(error)) from error
    if arguments.unsafe_no_sandbox:
        sys.stderr.write(_WARNING)
    backend: Backend = "none" if arguments.unsafe_no_sandbox else "auto"
    with CodePool(CodePoolConfig(backend=backend, limits=limits, num_warm=1)) as pool:
        report = pool.run(program, tests)
    sys.stdout.write(f"{_as_json(report) if arguments.json else _as_text(report)}\n")
    return 0


def _limits(cpu_s: float | None) -> Limits:
    limits = Limits()
    if cpu_s is None:
        return limits
    wall_s = 3 * cpu_s
    return replace(limits, test_cpu_s=cpu_s, test_wall_s=wall_s, total_wall_s=max(limits.total_wall_s, wall_s))


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > most:
        raise UserError(f"{path} is larger than {most} bytes")
    return data


def _as_text(report: CodeReport) -> str:
    failed = [test for test in report.outcomes if test.outcome != Outcome.PASSED]
    lines = [as_text(report.decision)]
    lines += [f"   {test.name}: {test.outcome.value}  {test.detail}".rstrip() for test in failed[:_MAX_SHOWN]]
    if len(failed) > _MAX_SHOWN:
        lines.append(f"   and {len(failed) - _MAX_SHOWN} more")
    return "\n".join(lines)


def _as_json(report: CodeReport) -> str:
    tests = [{"name": test.name, "outcome": test.outcome.value, "detail": test.detail} for test in report.outcomes]
    return json.dumps({**json.loads(as_json(report.decision)), "sandbox": report.backend, "tests": tests})
