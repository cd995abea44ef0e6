"""The course of a grading by a judge; what is asked, and what follows from it, are the rules of each kind of judge.

    reference   JSON {"answer": "...", "question": "..."}; the question may be left out

The rules decide what they can without a judge. A judge that is down, slow, or writes something else, and calls beyond
the budget, are "cannot be graded". Not reproducible.
"""

from typing import Protocol

import msgspec

from farflung.envs.graders.judge_bench import Bench, Session
from farflung.envs.graders.judge_client import NoBallot
from farflung.rewards.decision import Decision

MAX_REFERENCE_CHARS = 20_000


class Reference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    answer: str
    question: str = ""


class JudgeRules(Protocol):
    def answer_in(self, completion: str) -> str:
        """What the judge may see of a completion; "" if nothing."""
        ...

    def without_judge(self, told: Reference, answer: str) -> Decision | None:
        """None if the judge has to be asked."""
        ...

    def with_judge(self, told: Reference, answer: str, session: Session) -> Decision:
        """Raises `NoBallot`."""
        ...


class JudgeGrader:
    """Implements `Grader`."""

    def __init__(self, bench: Bench, rules: JudgeRules) -> None:
        self._bench = bench
        self._rules = rules

    def grade(self, reference: str, completion: str) -> Decision:
        told = read_reference(reference)
        if told is None:
            return Decision(None, "gold_unparseable", 'the reference is JSON {"answer": "...", "question": "..."}')
        answer = self._rules.answer_in(completion).strip()
        decided = self._rules.without_judge(told, answer)
        if decided is not None:
            return decided
        try:
            return self._rules.with_judge(told, answer, self._bench.session())
        except NoBallot as trouble:
            return Decision(None, trouble.trouble.value, trouble.detail)


def read_reference(reference: str) -> Reference | None:
    """None for what is no reference, or one without an answer."""
    if len(reference) > MAX_REFERENCE_CHARS:
        return None
    try:
        told = msgspec.json.decode(reference, type=Reference)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return told if told.answer.strip() else None
