"""Votes of several validators on one submission, for tests of what they lead to."""

from typing import Any

from farflung.slots.panel import Panel, committed, opened, revealed
from farflung.wire.canonical import sha256_hex
from farflung.wire.panel import Commitment, seal
from farflung.wire.verdict import Outcome, RejectReason, Verdict

SECRET = b"\x05" * 32
SUBMISSION = sha256_hex(b"submission")
SALT = "ab" * 32
REWARDS = sha256_hex(b"rewards")


def vote(validator: str, reason: RejectReason | None = None, rewards: str = REWARDS, **changes: Any) -> Verdict:
    outcome = Outcome.ACCEPTED if reason is None else reason.outcome
    return Verdict(
        pool_digest=sha256_hex(b"pool"),
        submission_digest=SUBMISSION,
        validator=validator,
        outcome=outcome,
        reason=reason,
        evidence_digest=sha256_hex(validator.encode()),
        rewards_digest=rewards if outcome is Outcome.ACCEPTED else "",
        judged_at_ms=0,
        **changes,
    )


def commitment(verdict: Verdict, salt: str = SALT) -> Commitment:
    return Commitment(
        pool_digest=verdict.pool_digest,
        submission_digest=SUBMISSION,
        validator=verdict.validator,
        sealed=seal(SUBMISSION, verdict.validator, verdict.outcome, verdict.rewards_digest, salt),
    )


def panel_of(*members: str) -> Panel:
    return Panel(submission_digest=SUBMISSION, round_number=0, members=members, commit_by_ms=10)


def voted(*votes: Verdict) -> Panel:
    panel = panel_of(*(each.validator for each in votes))
    for each in votes:
        panel = committed(panel, commitment(each))
    panel = opened(panel, 20)
    for each in votes:
        panel = revealed(panel, each, SALT)
    return panel
