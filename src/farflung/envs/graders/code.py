"""The grader of programs: the last code block of a completion, run against the tests of the task in a sandbox.

    code@1    reference: tests as `sandbox.code.tests` reads them; 1 if all of them pass

Not reproducible: a program at the limit of its time passes on one machine and not on another, and a program may draw
its own randomness. Without a sandbox there is no verdict; a program never runs outside of one here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.graders.base import Grader, GraderKind
from farflung.errors import UserError
from farflung.rewards.code_blocks import last_code_block
from farflung.rewards.decision import Decision
from farflung.sandbox.code.config import CodePoolConfig
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.code.tests import TestsUnreadable, read_tests
from farflung.sandbox.isolation.limits import MIB, Limits
from farflung.wire.pool import EnvArg

LANGUAGES = frozenset({"python", "py", "python3", ""})
"""Tags of blocks that count."""
_WALL_FACTOR = 3.0
_MIN_TOTAL_S = 60.0


class CodeOptions(Config):
    """Limits of a program, and what a part of the tests is worth."""

    partial: bool = False
    """Pay the share of tests that pass instead of all or nothing."""
    test_cpu_s: float = Field(10.0, gt=0, le=600)
    """CPU seconds of each process of a program, for one test; three times as long by the clock."""
    memory_mib: int = Field(512, ge=64, le=1 << 16)
    """Address space of each process, and memory of all of them where control groups can be made."""

    def limits(self) -> Limits:
        wall_s = self.test_cpu_s * _WALL_FACTOR
        return Limits(
            test_cpu_s=self.test_cpu_s,
            test_wall_s=wall_s,
            total_wall_s=max(_MIN_TOTAL_S, 4 * wall_s),
            memory_bytes=self.memory_mib * MIB,
        )


@dataclass(frozen=True, slots=True)
class CodeGrader:
    """Implements `Grader`. The pool is made when it is first needed, so that a machine without walls can sample."""

    options: CodeOptions
    pool: CodePool | None = None
    """None: the one that graders with these limits share in this process."""

    def grade(self, reference: str, completion: str) -> Decision:
        """The verdict on the last Python block after the thinking part."""
        program = last_code_block(completion, LANGUAGES)
        if program is None:
            return Decision(0.0, "no_code", "no closed code block after the thinking part")
        return self.grade_program(reference, program)

    def grade_program(self, reference: str, program: str) -> Decision:
        """The verdict on a bare program."""
        try:
            tests = read_tests(reference.encode("utf-8", "surrogatepass"))
            pool = shared_pool(self.options.limits()) if self.pool is None else self.pool
        except TestsUnreadable as error:
            return Decision(None, "tests_unreadable", str(error)[:300])
        except UserError as error:
            return Decision(None, "no_sandbox", str(error)[:300])
        report = pool.run(program, tests, stop_early=not self.options.partial)
        decision = report.decision
        if self.options.partial and decision.verdict == 0.0 and report.num_passed:
            return replace(decision, verdict=report.share_passed)
        return decision


@lru_cache(4)
def shared_pool(limits: Limits) -> CodePool:
    """One for each set of limits; ends with the process. Raises `UserError` where programs cannot be shut in."""
    return CodePool(CodePoolConfig(limits=limits))


def require_sandbox() -> None:
    """Raises `UserError` where programs cannot be shut in, and why."""
    CodePool(CodePoolConfig(num_warm=0)).close()


def _build(args: Mapping[str, EnvArg]) -> Grader:
    return CodeGrader(parse_arguments(CodeOptions, "code", args, "grader"))


CODE_KINDS = (GraderKind(name="code", version=1, build=_build, is_reproducible=False, require_ready=require_sandbox),)
