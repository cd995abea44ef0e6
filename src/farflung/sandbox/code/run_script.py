"""Whole programs: one sandbox for each test; only standard input goes in, outputs are compared out here."""

import time
from collections.abc import Callable

from farflung.sandbox.code.compare import same_text
from farflung.sandbox.code.report import Outcome, TestOutcome, explain, outcome_of
from farflung.sandbox.code.sandbox import Cause, Ending, Sandbox
from farflung.sandbox.code.tests import ScriptTest, ScriptTests
from farflung.sandbox.isolation.limits import Limits

Take = Callable[[], Sandbox]
"""Hands out a fresh sandbox that is ready."""


def run_script_tests(
    program: str, tests: ScriptTests, take: Take, limits: Limits, *, stop_early: bool
) -> list[TestOutcome]:
    """One outcome for each test, in order. Raises `Transient` when a sandbox, not the program, failed."""
    deadline = time.monotonic() + limits.total_wall_s
    outcomes: list[TestOutcome] = []
    for index, test in enumerate(tests.tests):
        name = f"test {index}"
        if stop_early and outcomes and outcomes[-1].outcome != Outcome.PASSED:
            outcomes.append(TestOutcome(name, Outcome.NOT_RUN, "an earlier test failed"))
        elif time.monotonic() > deadline:
            outcomes.append(TestOutcome(name, Outcome.TIME_LIMIT, f"all tests together took {limits.total_wall_s:g} s"))
        else:
            ending = run_script(program, test.stdin, take, limits)
            outcomes.append(_judge(name, test, ending, tests))
    return outcomes


def run_script(program: str, stdin: str, take: Take, limits: Limits) -> Ending:
    """How a whole program ended, with what it printed. Raises `Transient` when a sandbox failed."""
    sandbox = take()
    try:
        sandbox.give({"mode": "script", "program": program, "stdin": stdin}, limits.test_cpu_s)
        deadline = time.monotonic() + limits.test_wall_s
        while sandbox.receive(deadline) is not None:
            pass  # a script has nobody to talk to; the channel was closed before it began
        assert sandbox.ending is not None, "receive said that it ended"
        return sandbox.ending
    finally:
        sandbox.kill()


def _judge(name: str, test: ScriptTest, ending: Ending, tests: ScriptTests) -> TestOutcome:
    """A right output does not help a program that did not end well."""
    if ending.cause != Cause.EXITED:
        return outcome_of(name, ending)
    if ending.exit_code != 0:
        return TestOutcome(name, Outcome.RUNTIME_ERROR, explain(ending), ending.cpu_s)
    given = ending.stdout.decode("utf-8", "replace")
    if same_text(test.stdout, given, compare=tests.compare, tolerance=tests.tolerance):
        return TestOutcome(name, Outcome.PASSED, "", ending.cpu_s)
    return TestOutcome(name, Outcome.WRONG_RESULT, f"it printed {given[:100]!r}", ending.cpu_s)
