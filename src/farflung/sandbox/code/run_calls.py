"""Functions: one sandbox loads the program and is asked, argument by argument; results are compared out here."""

import time
from typing import Any

import msgspec

from farflung.sandbox.code.compare import same_value
from farflung.sandbox.code.inside.codec import MAX_DEPTH, Tree, to_tree
from farflung.sandbox.code.inside.json_text import dumps
from farflung.sandbox.code.report import Outcome, TestOutcome, outcome_of
from farflung.sandbox.code.run_script import Take
from farflung.sandbox.code.sandbox import Sandbox
from farflung.sandbox.code.tests import CallTest, CallTests
from farflung.sandbox.isolation.limits import Limits


def run_call_tests(
    program: str, tests: CallTests, take: Take, limits: Limits, *, stop_early: bool
) -> list[TestOutcome]:
    """One outcome for each test, in order. Raises `Transient` when a sandbox, not the program, failed."""
    sandbox = take()
    try:
        loading = load(sandbox, program, limits)
        if isinstance(loading, TestOutcome):
            return [TestOutcome(f"test {i}", loading.outcome, loading.detail) for i in range(len(tests.tests))]
        return _ask_all(sandbox, tests, limits, stop_early=stop_early)
    finally:
        sandbox.kill()


def load(sandbox: Sandbox, program: str, limits: Limits) -> dict[str, Any] | TestOutcome:
    """What the program offers, or how loading it failed."""
    sandbox.give({"mode": "answers", "program": program}, limits.total_wall_s)
    answer = sandbox.receive(time.monotonic() + limits.test_wall_s)
    if answer is None:
        assert sandbox.ending is not None, "receive said that it ended"
        return outcome_of("load", sandbox.ending)
    message = read_message(answer)
    if "loaded" in message and isinstance(message["loaded"], dict):
        return dict(message["loaded"])
    return TestOutcome("load", Outcome.RUNTIME_ERROR, describe_raised(message))


def read_message(data: bytes) -> dict[str, Any]:
    """A message of the program; empty when it is none."""
    try:
        message = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}


def describe_raised(message: dict[str, Any]) -> str:
    """The exception in a message, in words."""
    match message.get("raised"):
        case [[str(kind), *_], str(text)]:
            return f"{kind}: {text}" if text else kind
    return "the program's answer cannot be read"


def _ask_all(sandbox: Sandbox, tests: CallTests, limits: Limits, *, stop_early: bool) -> list[TestOutcome]:
    deadline = time.monotonic() + limits.total_wall_s
    outcomes: list[TestOutcome] = []
    for index, test in enumerate(tests.tests):
        name = f"test {index}"
        if sandbox.ending is not None:
            outcomes.append(TestOutcome(name, Outcome.NOT_RUN, "the program was over before"))
        elif stop_early and outcomes and outcomes[-1].outcome != Outcome.PASSED:
            outcomes.append(TestOutcome(name, Outcome.NOT_RUN, "an earlier test failed"))
        else:
            sandbox.send(dumps({"call": [tests.function, *_arguments(test, tests)]}))
            answer = sandbox.receive(min(deadline, time.monotonic() + limits.test_wall_s))
            outcomes.append(_judge(name, test, answer, tests, sandbox))
    return outcomes


def _arguments(test: CallTest, tests: CallTests) -> tuple[list[Tree], dict[str, Tree]]:
    def tree(value: Any) -> Tree:
        return value if tests.tagged else to_tree(value)

    return [tree(value) for value in test.args], {name: tree(value) for name, value in test.kwargs.items()}


def _judge(name: str, test: CallTest, answer: bytes | None, tests: CallTests, sandbox: Sandbox) -> TestOutcome:
    if answer is None:
        assert sandbox.ending is not None, "receive said that it ended"
        return outcome_of(name, sandbox.ending)
    message = read_message(answer)
    if "value" not in message:
        return TestOutcome(name, Outcome.RUNTIME_ERROR, describe_raised(message))
    given, expected = message["value"], test.expected if tests.tagged else to_tree(test.expected)
    if same_value(expected, given, tuples_are_lists=tests.tuples_are_lists, tolerance=tests.tolerance):
        return TestOutcome(name, Outcome.PASSED)
    return TestOutcome(name, Outcome.WRONG_RESULT, f"it gave {_short(given)}")


def _short(tree: Tree) -> str:
    """The start of a value as it was sent; depth is bounded, since the reader bounds it."""
    if isinstance(tree, dict) and set(tree) == {"r"}:
        return "an object that is no plain data"
    try:
        return msgspec.json.encode(tree).decode()[:100]
    except (RecursionError, ValueError):
        return f"a value nested deeper than {MAX_DEPTH}"
