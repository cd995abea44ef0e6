"""The grader of programs: what it takes from a completion, and what it is worth."""

from collections.abc import Iterator

import pytest

from farflung.envs.graders import code
from farflung.envs.graders.code import CodeGrader, CodeOptions, require_sandbox
from farflung.envs.graders.registry import build_grader, grader_spec
from farflung.errors import UserError
from farflung.rewards.decision import Decision
from farflung.sandbox.code.attacks.attack import LIMITS
from farflung.sandbox.code.config import CodePoolConfig
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.code.tests import CallTest, CallTests, write_tests

SQUARES = write_tests(CallTests(function="f", tests=[CallTest(args=[n], expected=n * n) for n in range(4)])).decode()
RIGHT, HALF = "def f(x): return x * x", "def f(x): return x + x"


@pytest.fixture(scope="module")
def pool() -> Iterator[CodePool]:
    with CodePool(CodePoolConfig(limits=LIMITS)) as made:
        yield made


def grade(pool: CodePool, completion: str, **options: bool) -> tuple[float | None, str]:
    decision = CodeGrader(CodeOptions(**options), pool).grade(SQUARES, completion)  # type: ignore[arg-type]
    return decision.verdict, decision.rule


@pytest.mark.parametrize(
    ("completion", "wanted"),
    [
        (f"Here:\n```python\n{RIGHT}\n```\nDone.", (1.0, "all_tests_passed")),
        (f"```python\n{HALF}\n```\nno, rather\n```py\n{RIGHT}\n```", (1.0, "all_tests_passed")),
        (f"```python\n{RIGHT}\n```\nor\n```python\n{HALF}\n```", (0.0, "wrong_result")),
        (f"```python\n{RIGHT}\n```\n```text\nexample output\n```", (1.0, "all_tests_passed")),
        (f"<think>```python\n{RIGHT}\n```", (0.0, "no_code")),
        (f"```python\n{RIGHT}", (0.0, "no_code")),
        (RIGHT, (0.0, "no_code")),
        ("", (0.0, "no_code")),
        ("```python\n\n```", (0.0, "no_code")),
    ],
)
def test_the_last_closed_block_of_python_counts(
    pool: CodePool, completion: str, wanted: tuple[float | None, str]
) -> None:
    assert grade(pool, completion) == wanted


def test_partial_credit_is_the_share_of_tests_where_that_is_asked_for(pool: CodePool) -> None:
    assert grade(pool, f"```python\n{HALF}\n```", partial=True) == (0.5, "wrong_result")
    assert grade(pool, f"```python\n{HALF}\n```") == (0.0, "wrong_result")


def test_unreadable_tests_and_a_machine_without_walls_give_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UserError("programs cannot be shut in")

    monkeypatch.setattr(code, "shared_pool", refuse)
    grader = build_grader(grader_spec("code@1", {"test_cpu_s": 1.0}))
    assert grader.grade("{}", f"```python\n{RIGHT}\n```").rule == "tests_unreadable"
    decision = grader.grade(SQUARES, f"```python\n{RIGHT}\n```")
    assert decision == Decision(None, "no_sandbox", "programs cannot be shut in")


def test_a_machine_that_cannot_grade_programs_says_so_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    require_sandbox()

    def refuse(*_: object) -> None:
        raise UserError("programs cannot be shut in")

    monkeypatch.setattr(code, "CodePool", refuse)
    with pytest.raises(UserError, match="cannot be shut in"):
        require_sandbox()


def test_wrong_options_are_named() -> None:
    with pytest.raises(UserError, match="memory_mib"):
        build_grader(grader_spec("code@1", {"memory_mib": 1}))
