"""Programs in, reports out; what the pool does when sandboxes fail."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from farflung.errors import Transient, UserError
from farflung.sandbox.code import pool as pool_module
from farflung.sandbox.code.attacks.attack import LIMITS
from farflung.sandbox.code.config import CodePoolConfig
from farflung.sandbox.code.machine import Machine
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.code.report import Outcome
from farflung.sandbox.code.tests import CallTest, CallTests, PytestTests, ScriptTest, ScriptTests

REVERSE = ScriptTests(tests=[ScriptTest("ab\n", "ba\n"), ScriptTest("xyz", "zyx")])
SQUARES = CallTests(function="square", tests=[CallTest(args=[n], expected=n * n) for n in range(3)])


@pytest.fixture
def own_pool() -> Iterator[CodePool]:
    """To be broken."""
    with CodePool(CodePoolConfig(limits=LIMITS, num_warm=1)) as made:
        yield made


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def own_groups() -> set[Path]:
    cgroups = Machine.ask().cgroups
    return (
        {path for folder in cgroups.folders() for path in folder.glob(f"farflung-{os.getpid()}-*")}
        if cgroups
        else set()
    )


def processes_of(root: str) -> list[str]:
    """Command lines that name the pool's root folder: its keeper, what that forked, helpers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return [words for words in found if root in words]


def rule(pool: CodePool, program: str, tests: ScriptTests | CallTests | PytestTests) -> tuple[float | None, str]:
    decision = pool.run(program, tests).decision
    return decision.verdict, decision.rule


def test_a_right_script_passes_every_test(pool: CodePool) -> None:
    report = pool.run("print(input()[::-1])", REVERSE)
    assert (report.decision.verdict, report.num_passed, report.attempts) == (1.0, 2, 1)
    assert report.backend == pool.backend


def test_a_half_right_script_gets_nothing_and_says_where(pool: CodePool) -> None:
    report = pool.run("print('ba')", REVERSE)
    assert report.decision.verdict == 0.0
    assert [test.outcome for test in report.outcomes] == [Outcome.PASSED, Outcome.WRONG_RESULT]
    assert report.share_passed == 0.5
    assert report.decision.detail == "1 of 2 tests passed; test 1: it printed 'ba\\n'"


def test_after_a_failure_the_rest_is_left_out_on_demand(pool: CodePool) -> None:
    report = pool.run("print('no')", REVERSE, stop_early=True)
    assert [test.outcome for test in report.outcomes] == [Outcome.WRONG_RESULT, Outcome.NOT_RUN]


def test_a_right_function_passes(pool: CodePool) -> None:
    assert rule(pool, "def square(x): return x * x", SQUARES) == (1.0, "all_tests_passed")


def test_a_method_of_a_class_is_called_on_a_fresh_object(pool: CodePool) -> None:
    tests = CallTests(function="Solution.add", tests=[CallTest(args=[1], kwargs={"b": 2}, expected=3)])
    assert rule(pool, "class Solution:\n    def add(self, a, b): return a + b", tests) == (1.0, "all_tests_passed")


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("def square(x): return -1", "wrong_result"),
        ("def square(x): return str(x * x)", "wrong_result"),
        ("def square(x): raise KeyError(x)", "runtime_error"),
        ("def other(x): return x * x", "runtime_error"),
        ("def square(x: return x", "runtime_error"),
        ("raise SystemExit(0)", "runtime_error"),
        ("", "runtime_error"),
        ("def square(x): return square", "wrong_result"),
    ],
)
def test_a_wrong_function_fails(pool: CodePool, program: str, wanted: str) -> None:
    assert rule(pool, program, SQUARES) == (0.0, wanted)


def test_an_exception_is_no_empty_result(pool: CodePool) -> None:
    """Case 40."""
    source = "def solve(x): raise ValueError\n"
    assert rule(pool, source, CallTests(function="solve", tests=[CallTest(args=[1], expected="")]))[0] == 0.0
    script = ScriptTests(tests=[ScriptTest("1", "")])
    assert rule(pool, f"{source}solve(input())", script) == (0.0, "runtime_error")


def test_a_printed_marker_means_nothing(pool: CodePool) -> None:
    """Case 41."""
    tests = ScriptTests(tests=[ScriptTest("", "EXIT_CODE:0")])
    assert rule(pool, "print('EXIT_CODE:0')\nraise ValueError", tests) == (0.0, "runtime_error")


def test_481_tests_with_huge_names_all_run_and_the_score_is_stable(pool: CodePool) -> None:
    """Case 42."""
    source = (
        "import pytest\nfrom solution import f\n"
        "@pytest.mark.parametrize('text', ['x' * 33_000 + str(n) for n in range(481)])\n"
        "def test_length(text): assert f(text) == len(text)\n"
    )
    for _ in range(2):
        report = pool.run("def f(text): return len(text)", PytestTests(source=source, num_tests=481))
        assert (report.decision.verdict, report.num_passed) == (1.0, 481)


def test_leaving_in_the_first_call_runs_too_few_tests(pool: CodePool) -> None:
    """Case 43."""
    report = pool.run("import os\ndef square(x): os._exit(0)", SQUARES)
    assert report.decision.verdict == 0.0
    assert [test.outcome for test in report.outcomes] == [Outcome.NOT_RUN] * 3


def test_a_harness_that_is_not_there_is_nobodys_zero(pool: CodePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 44."""
    tests = PytestTests(source="import harness.of.another.machine\ndef test_x(): assert True")
    assert rule(pool, "x = 1", tests) == (None, "tests_unreadable")


def test_a_sandbox_that_fails_is_replaced_and_the_program_tried_again(
    own_pool: CodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 44."""
    take, failures = own_pool.take, [Transient("broken")]

    def fail_once() -> pool_module.Sandbox:
        if failures:
            raise failures.pop()
        return take()

    monkeypatch.setattr(own_pool, "take", fail_once)
    report = own_pool.run("print(input()[::-1])", REVERSE)
    assert (report.decision.verdict, report.attempts) == (1.0, 2)


def test_sandboxes_that_always_fail_give_no_verdict(own_pool: CodePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 44."""

    def fail() -> pool_module.Sandbox:
        raise Transient("broken")

    monkeypatch.setattr(own_pool, "take", fail)
    report = own_pool.run("print(input()[::-1])", REVERSE)
    assert (report.decision.verdict, report.decision.rule, report.decision.detail) == (None, "sandbox_failed", "broken")
    assert report.attempts == own_pool.config.attempts


def test_a_killed_keeper_is_started_again(own_pool: CodePool) -> None:
    (keeper,) = [pid for pid in children_of(os.getpid()) if b"keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()][-1:]
    os.kill(keeper, signal.SIGKILL)
    assert rule(own_pool, "print(input()[::-1])", REVERSE) == (1.0, "all_tests_passed")


def test_no_program_meets_the_traces_of_another(pool: CodePool) -> None:
    """A sandbox is used once."""
    program = (
        "import os, builtins\nprint(os.listdir('.'), hasattr(builtins, 'seen'))\nopen('x', 'w')\nbuiltins.seen = 1"
    )
    tests = ScriptTests(tests=[ScriptTest("", "[] False")] * 4)
    assert rule(pool, program, tests) == (1.0, "all_tests_passed")


def test_threads_may_share_a_pool(pool: CodePool) -> None:
    with ThreadPoolExecutor(6) as threads:
        reports = list(threads.map(lambda n: pool.run(f"def square(x): return x * x + {n % 2}", SQUARES), range(12)))
    assert [report.decision.verdict for report in reports] == [1.0, 0.0] * 6


def test_the_same_program_sees_the_same_hashes(pool: CodePool) -> None:
    """A verdict can be replayed."""
    wanted = pool.run(
        "def f(): return list({'a', 'b', 'c', 'd'})", CallTests(function="f", tests=[CallTest(expected=[])])
    )
    again = pool.run(
        "def f(): return list({'a', 'b', 'c', 'd'})", CallTests(function="f", tests=[CallTest(expected=[])])
    )
    assert wanted.decision.detail == again.decision.detail


def test_a_program_of_any_size_is_refused_before_it_travels(pool: CodePool) -> None:
    assert rule(pool, "#" * (1 << 20), SQUARES) == (0.0, "program_too_long")


@pytest.mark.parametrize("num_runs", [0, 1])
def test_nothing_is_left_when_a_pool_is_closed(num_runs: int) -> None:
    """Also of sandboxes that were still starting."""
    before, groups = set(children_of(os.getpid())), own_groups()
    made = CodePool(CodePoolConfig(limits=LIMITS, num_warm=2))
    assert made._keeper is not None
    root = made._keeper._root
    assert processes_of(root)
    for _ in range(num_runs):
        made.run("import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nprint('ba')", REVERSE)
    made.close()
    assert (set(children_of(os.getpid())), own_groups()) == (before, groups)
    assert not processes_of(root)


def test_a_fork_gets_a_keeper_of_its_own_and_leaves_the_parents_alone(own_pool: CodePool) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if rule(own_pool, "print(input()[::-1])", REVERSE)[0] == 1.0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rule(own_pool, "print(input()[::-1])", REVERSE)[0] == 1.0


def test_a_machine_that_cannot_shut_programs_in_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Transient("unshare 0x10000000: Operation not permitted")

    monkeypatch.setattr(pool_module, "KeeperLink", refuse)
    with pytest.raises(UserError, match=r"namespaces: unshare .*install bubblewrap or .*--unsafe-no-sandbox"):
        CodePool(CodePoolConfig(), Machine(is_root=False, bubblewrap=None, landlock=0, cgroups=None))


def test_bubblewrap_that_is_wanted_and_missing_is_named() -> None:
    with pytest.raises(UserError, match="no bwrap on the PATH"):
        CodePool(
            CodePoolConfig(backend="bubblewrap"), Machine(is_root=False, bubblewrap=None, landlock=0, cgroups=None)
        )


def test_without_walls_a_users_own_code_runs() -> None:
    with CodePool(CodePoolConfig(backend="none", num_warm=0)) as made:
        assert rule(made, "print(input()[::-1])", REVERSE) == (1.0, "all_tests_passed")
        assert rule(made, "import time\ntime.sleep(0.1)\nprint(1)", REVERSE) == (0.0, "wrong_result")


@pytest.mark.parametrize("name", ["add", "mod", "pow"])
def test_another_functions_name_is_no_function_either(pool: CodePool, name: str) -> None:
    tests = CallTests(function=name, tests=[CallTest(args=[2, 3], expected={"add": 5, "mod": 2, "pow": 8}[name])])
    assert rule(pool, "def add_(a, b): return a + b\nimport operator", tests)[0] == 0.0


def test_a_function_named_as_an_operator_is_the_programs(pool: CodePool) -> None:
    tests = CallTests(function="pow", tests=(CallTest(args=[2, 10, 7], expected=2),))
    assert rule(pool, "def pow(a, b, m): return a ** b % m", tests) == (1.0, "all_tests_passed")
