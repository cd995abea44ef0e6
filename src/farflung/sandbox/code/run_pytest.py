"""Test files: the tests in one sandbox, the program in another, and between them only what this module passes on.

The program cannot patch, count, skip or read a test, since none is ever near it; all it can do is answer calls.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from farflung.errors import Transient
from farflung.sandbox.code.inside.json_text import dumps
from farflung.sandbox.code.report import Outcome, TestOutcome, outcome_of
from farflung.sandbox.code.run_calls import load, read_message
from farflung.sandbox.code.run_script import Take
from farflung.sandbox.code.sandbox import Sandbox
from farflung.sandbox.code.tests import PytestTests, TestsUnreadable
from farflung.sandbox.isolation.limits import Limits

_OUTCOMES = {"passed": Outcome.PASSED, "failed": Outcome.WRONG_RESULT, "not_run": Outcome.NOT_RUN}


def run_pytest_tests(program: str, tests: PytestTests, take: Take, limits: Limits) -> tuple[list[TestOutcome], int]:
    """(outcomes, expected number).

    Raises:
        Transient: a sandbox, not the program, failed.
        TestsUnreadable: the tests themselves cannot be run, whatever the program.
    """
    deadline = time.monotonic() + limits.total_wall_s
    solution = take()
    try:
        loading = load(solution, program, limits)
        if isinstance(loading, TestOutcome):
            return [loading], tests.num_tests or 1
        testing = take()
        try:
            job = {"mode": "tests", "source": tests.source, "entry": tests.entry, "exports": loading}
            testing.give(job, limits.total_wall_s)
            return _Relay(solution, testing, limits, deadline, tests.num_tests).run()
        finally:
            testing.kill()
    finally:
        solution.kill()


@dataclass(slots=True)
class _Relay:
    """Passes calls one way and answers the other; keeps the score."""

    solution: Sandbox
    testing: Sandbox
    limits: Limits
    deadline: float
    num_declared: int | None
    names: list[str] = field(default_factory=list)
    outcomes: list[TestOutcome] = field(default_factory=list)

    def run(self) -> tuple[list[TestOutcome], int]:
        while (data := self.testing.receive(self.deadline)) is not None:
            message = read_message(data)
            if "call" in message:
                self._pass_on(data)
            elif "failed_to_load" in message:
                failure = TestOutcome("load tests", Outcome.WRONG_RESULT, str(message["failed_to_load"]))
                return [failure], self.num_declared or 1
            elif "cannot_run" in message:
                raise TestsUnreadable(f"the tests cannot be run: {str(message['cannot_run'])[:200]}")
            else:
                self._note(message)
        return self._end()

    def _pass_on(self, question: bytes) -> None:
        if self.solution.ending is None:
            self.solution.send(question)
            answer = self.solution.receive(min(self.deadline, time.monotonic() + self.limits.test_wall_s))
            if answer is not None:
                self.testing.send(answer)
                return
        self.testing.send(dumps({"gone": True}))

    def _note(self, message: dict[str, Any]) -> None:
        match message:
            case {"collected": list(names)}:
                self.names = [str(name) for name in names]
                if self.num_declared not in (None, len(names)):
                    raise TestsUnreadable(f"{len(names)} tests were found; {self.num_declared} are declared")
            case {"result": [int(index), str(outcome), str(text)]} if index == len(self.outcomes) < len(self.names):
                self.outcomes.append(self._outcome(self.names[index], _OUTCOMES[outcome], text))
            case {"done": int(number)} if number == len(self.outcomes):
                pass
            case _:
                raise Transient("the sandbox of the tests broke its protocol")

    def _outcome(self, name: str, outcome: Outcome, text: str) -> TestOutcome:
        """A program that is gone has passed nothing, whatever a test made of it."""
        ending = self.solution.ending
        if ending is None:
            return TestOutcome(name, outcome, text)
        gone = outcome_of(name, ending)
        earlier = any(old.outcome != Outcome.PASSED for old in self.outcomes)
        return TestOutcome(name, Outcome.NOT_RUN, "the program was over before") if earlier else gone

    def _end(self) -> tuple[list[TestOutcome], int]:
        """The sandbox of the tests is over: all told, or cut off in the middle of a test."""
        ending = self.testing.ending
        assert ending is not None, "receive said that it ended"
        num_expected = len(self.names)
        if not self.names:
            raise TestsUnreadable("the tests ended before they were collected")
        if len(self.outcomes) < num_expected:
            self.outcomes.append(outcome_of(self.names[len(self.outcomes)], ending))
        for name in self.names[len(self.outcomes) :]:
            self.outcomes.append(TestOutcome(name, Outcome.NOT_RUN, "an earlier test ended the run"))
        return self.outcomes, num_expected
