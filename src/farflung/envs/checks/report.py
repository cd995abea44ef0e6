"""A check and how it went."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    LEFT_OUT = "left out"
    """Nothing to look at, or something before it failed; the detail says which."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table."""

    name: str
    outcome: Outcome
    detail: str
    """What was looked at, or what was seen instead."""


def passed(name: str, detail: str) -> Check:
    return Check(name, Outcome.PASSED, detail)


def failed(name: str, detail: str) -> Check:
    return Check(name, Outcome.FAILED, detail)


def left_out(name: str, detail: str) -> Check:
    return Check(name, Outcome.LEFT_OUT, detail)
