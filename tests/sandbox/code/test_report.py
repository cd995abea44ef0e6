"""From outcomes to a verdict."""

from farflung.rewards.decision import Decision
from farflung.sandbox.code.report import MAX_DETAIL, MAX_NAME, Outcome, TestOutcome, decide, explain, outcome_of
from farflung.sandbox.code.sandbox import Cause, Ending

PASSED = TestOutcome("a", Outcome.PASSED)


def test_all_of_the_expected_number_must_pass() -> None:
    assert decide([PASSED, PASSED], 2) == Decision(1.0, "all_tests_passed", "2 tests")
    assert decide([PASSED], 2) == Decision(0.0, "not_run", "1 of 2 tests ran")
    assert decide([PASSED, PASSED, PASSED], 2).verdict == 0.0
    assert decide([], 0).verdict == 0.0


def test_the_first_failure_names_the_rule() -> None:
    late = TestOutcome("b", Outcome.TIME_LIMIT, "too slow")
    assert decide([PASSED, late, TestOutcome("c", Outcome.NOT_RUN)], 3) == Decision(
        0.0, "time_limit", "1 of 3 tests passed; b: too slow"
    )


def test_names_and_details_of_strangers_are_cut_and_cannot_steer_a_terminal() -> None:
    outcome = TestOutcome("x" * 40_000, Outcome.PASSED, "\x1b[31m\n" + "y" * 40_000)
    assert (len(outcome.name), len(outcome.detail)) == (MAX_NAME, MAX_DETAIL)
    assert outcome.detail.startswith(" [31m y")


def test_an_ending_in_the_middle_of_a_test_is_that_tests_outcome() -> None:
    assert outcome_of("a", Ending(cause=Cause.EXITED, exit_code=0)).outcome == Outcome.NOT_RUN
    assert outcome_of("a", Ending(cause=Cause.EXITED, exit_code=1)).outcome == Outcome.RUNTIME_ERROR
    assert outcome_of("a", Ending(cause=Cause.MEMORY_LIMIT, signal=9)).outcome == Outcome.MEMORY_LIMIT
    assert outcome_of("a", Ending(cause=Cause.MESSAGE_LIMIT, signal=9)).outcome == Outcome.OUTPUT_LIMIT


def test_an_ending_is_told_with_the_last_line_of_standard_error() -> None:
    ending = Ending(cause=Cause.EXITED, exit_code=1, stderr=b"Traceback\n  ...\nValueError: no\n")
    assert explain(ending) == "exit code 1: ValueError: no"
    assert explain(Ending(cause=Cause.EXITED, signal=11)) == "killed by signal 11"
    assert explain(Ending(cause=Cause.TIME_LIMIT)) == "the program went over its time limit"
