"""The interface of a grader, and what is known of each kind of it.

A grader compares one completion with one reference. It does not know tasks, pools or files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from farflung.envs.base import Grade
from farflung.rewards.decision import Decision
from farflung.wire.pool import EnvArg


class Grader(Protocol):
    def grade(self, reference: str, completion: str) -> Decision:
        """The verdict on one completion. Never raises on any text, and is bounded in time.

        Args:
            reference: `Task.answer`, in the form that the grader defines.
            completion: decoded text, thinking part and all.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class GraderKind:
    """One version of one grader: rules that never change once published."""

    name: str
    version: int
    build: Callable[[Mapping[str, EnvArg]], Grader]
    """Arguments -> grader, at once and without I/O; raises `UserError` naming a wrong one."""
    is_reproducible: bool = True
    """Whether whoever grades again gets the same verdict. False = graded on the trusted side alone, never audited."""

    require_ready: Callable[[], None] = lambda: None
    """Raises `UserError` if this machine lacks what grading needs: a sandbox, the address of a judge."""

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"


def as_grade(decision: Decision) -> Grade:
    """The reward of a task whose verdict is all there is; partial credit is paid and is not correct."""
    if decision.verdict is None:
        return Grade(reward=None)
    return Grade(reward=decision.verdict, correct=float(decision.verdict >= 1.0))
