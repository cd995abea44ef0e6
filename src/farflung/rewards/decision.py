"""What a grader found, and the rule that decided; the one result type of all graders.

A verdict is 1.0, 0.0 or None. None means that nobody can be blamed: the *reference* cannot be graded against, or what
was needed to grade (a sandbox, a judge) failed. A pure rule that does not know the answer says `undecided`, and a
grader with more means (`envs.graders`) may go on to ask it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """One verdict with its cause."""

    verdict: float | None
    """1.0 right, 0.0 wrong, between for partial credit where a grader declares it; None = cannot be graded."""
    rule: str
    """Name of the rule that decided, in snake case: `same_integer`, `no_answer`, `gold_unparseable`, ..."""
    detail: str = ""
    """For people: at most a sentence; never a parsed foreign object printed."""
    undecided: bool = False
    """The rule knew no answer; `verdict` is then the safe one (0.0) for a caller with no further means."""
