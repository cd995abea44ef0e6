"""What running the tests of one program found, and the verdict that follows. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from farflung.rewards.decision import Decision
from farflung.sandbox.code.sandbox import Cause, Ending

MAX_NAME = 120
MAX_DETAIL = 300


class Outcome(StrEnum):
    """Of one test. The order of the members says nothing."""

    PASSED = "passed"
    WRONG_RESULT = "wrong_result"
    RUNTIME_ERROR = "runtime_error"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    NOT_RUN = "not_run"
    """The program was over before; or an earlier failure ended the run on demand."""


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """One test. Name and detail are cut: both may come from a stranger."""

    __test__ = False

    name: str
    outcome: Outcome
    detail: str = ""
    cpu_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _cut(self.name, MAX_NAME))
        object.__setattr__(self, "detail", _cut(self.detail, MAX_DETAIL))


def _cut(text: str, most: int) -> str:
    printable = "".join(sign if sign.isprintable() else " " for sign in text[: most + 1])
    return printable if len(printable) <= most else f"{printable[: most - 3]}..."


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeReport:
    """All tests of one program."""

    outcomes: tuple[TestOutcome, ...]
    decision: Decision
    backend: str
    """What shut the program in: `bubblewrap`, `namespaces` or `none`."""
    attempts: int = 1
    """More than one: a sandbox failed in between."""

    @property
    def num_passed(self) -> int:
        return sum(outcome.outcome == Outcome.PASSED for outcome in self.outcomes)

    @property
    def share_passed(self) -> float:
        """For a grader that declares partial credit; 0 without any test."""
        return self.num_passed / max(1, len(self.outcomes))


def decide(outcomes: Sequence[TestOutcome], num_expected: int) -> Decision:
    """1 when exactly the expected number of tests ran and all of them passed, else 0 by the first failure's name."""
    failures = [outcome for outcome in outcomes if outcome.outcome != Outcome.PASSED]
    if failures:
        first = failures[0]
        passed = f"{len(outcomes) - len(failures)} of {num_expected} tests passed"
        return Decision(0.0, first.outcome.value, f"{passed}; {first.name}: {first.detail}")
    if len(outcomes) != num_expected or num_expected == 0:
        return Decision(0.0, Outcome.NOT_RUN.value, f"{len(outcomes)} of {num_expected} tests ran")
    return Decision(1.0, "all_tests_passed", f"{num_expected} tests")


_OUTCOME_OF = {
    Cause.EXITED: Outcome.RUNTIME_ERROR,
    Cause.TIME_LIMIT: Outcome.TIME_LIMIT,
    Cause.MEMORY_LIMIT: Outcome.MEMORY_LIMIT,
    Cause.OUTPUT_LIMIT: Outcome.OUTPUT_LIMIT,
    Cause.MESSAGE_LIMIT: Outcome.OUTPUT_LIMIT,
}


def outcome_of(name: str, ending: Ending) -> TestOutcome:
    """Of a test in whose middle the program ended."""
    if ending.cause == Cause.EXITED and ending.exit_code == 0:
        return TestOutcome(name, Outcome.NOT_RUN, "the program ended, with code 0, before it answered", ending.cpu_s)
    return TestOutcome(name, _OUTCOME_OF[ending.cause], explain(ending), ending.cpu_s)


def explain(ending: Ending) -> str:
    """How a program ended, in words, with the last line of its standard error."""
    if ending.cause != Cause.EXITED:
        return f"the program went over its {ending.cause.value.replace('_', ' ')}"
    how = f"killed by signal {ending.signal}" if ending.signal is not None else f"exit code {ending.exit_code}"
    lines = ending.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{how}: {lines[-1]}" if lines else how
