r"""Graders of mathematics: exact rules first, a second opinion only where they are undecided.

    exact rules     yes or no    that is the verdict; a "no" is never turned into a "yes"
    undecided       unfit text   0, or None if the gold is at fault: the second opinion misreads such texts (`unfit`)
                    otherwise    the verdict of `sandbox.math`, whose "yes" must be confirmed there

    math-exact@1    the rules alone; whoever grades again gets the same verdicts
    math@1          with the second opinion, which depends on the algebra system's version and, for an answer at the
                    limit of its CPU time, on the machine: not reproducible

A completion is graded by its marked answer (`\boxed{}`, `####`, "answer is"); without a mark it is wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from farflung.envs.arguments import parse_arguments
from farflung.envs.graders.base import GraderKind
from farflung.envs.graders.math_options import MathOptions
from farflung.envs.graders.unfit import unfit
from farflung.rewards.decision import Decision
from farflung.rewards.extract import final_answer
from farflung.rewards.math.grade import grade_math, marked
from farflung.rewards.math.policy import DEFAULT_POLICY, MathPolicy
from farflung.rewards.math.spelling import normalize
from farflung.sandbox.math.pool import MathPool, require_math_verify
from farflung.wire.pool import EnvArg


@dataclass(frozen=True, slots=True)
class MathGrader:
    """Grades final answers; implements `Grader`."""

    policy: MathPolicy = DEFAULT_POLICY
    pool: MathPool | None = None
    """None: the exact rules alone."""

    def grade(self, reference: str, completion: str) -> Decision:
        """The verdict on the marked answer of a completion."""
        answer = final_answer(completion)
        if answer is None:
            return Decision(0.0, "no_answer", "no marked answer after the thinking part")
        return self.grade_answer(reference, rf"\boxed{{{answer}}}")  # it is not looked into again: `6 #### 5`

    def grade_answer(self, gold: str, answer: str) -> Decision:
        r"""The verdict on a bare answer; what stands in a `\boxed{}` of either is taken out of it."""
        exact = grade_math(gold, answer, self.policy)
        if not exact.undecided or self.pool is None:
            return exact
        gold, answer = normalize(marked(gold)), normalize(marked(answer))
        rule = unfit(gold, answer)
        if rule is not None:
            return Decision(exact.verdict, f"not_asked_{rule}", f"after {exact.rule}")
        return self.pool.ask(gold, answer)


@lru_cache(1)
def shared_pool() -> MathPool:
    """The children of this process, for all its graders."""
    return MathPool()


def _exact(args: Mapping[str, EnvArg]) -> MathGrader:
    return MathGrader(parse_arguments(MathOptions, "math-exact", args).policy())


def _with_opinion(args: Mapping[str, EnvArg]) -> MathGrader:
    return MathGrader(parse_arguments(MathOptions, "math", args).policy(), shared_pool())


MATH_KINDS = (
    GraderKind(name="math-exact", version=1, build=_exact),
    GraderKind(name="math", version=1, build=_with_opinion, is_reproducible=False, require_ready=require_math_verify),
)
