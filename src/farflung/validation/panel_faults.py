"""What is recorded against validators when their votes are counted: a function of the votes and the rules.

Whoever does not commit, or does not show what it committed to, was not there. Whoever voted against the quorum made a
mistake or lied. Where the difference may come from the machine (figures between the two thresholds of a proof, a grader
that ran out of time, a version that grew too old meanwhile) it is told and costs nothing; where it cannot, it costs the
bond. Pure; who is paid is decided elsewhere.
"""

from farflung.slots.panel import Panel, vote_of
from farflung.wire.panel import Fault, FaultKind
from farflung.wire.verdict import GRADING_FAULT, SLASHABLE, Outcome, RejectReason, Verdict

MACHINES_DIFFER = frozenset(
    {
        RejectReason.FILE_DIGEST,
        RejectReason.FILE_TOO_LARGE,
        RejectReason.ACTIVATIONS,
        RejectReason.DRAWS,
        RejectReason.LOGPROBS,
        RejectReason.REGENERATION,
    }
)
"""Reasons of which an honest validator may see what another one does not: its numbers, or a damaged download."""


def panel_faults(panel: Panel, decided: Verdict | None, *, pool_digest: str, slot: int) -> list[Fault]:
    """In the order of the members, of a panel whose time is over or whose votes are complete."""
    found = [(member, _kind(panel, member, decided)) for member in panel.members]
    return [
        Fault(
            pool_digest=pool_digest,
            node=member,
            kind=kind,
            slot=slot,
            submission_digest=panel.submission_digest,
            verdict=panel.votes.get(member),
            contrary=decided if member in panel.votes else None,
        )
        for member, kind in found
        if kind is not None
    ]


def _kind(panel: Panel, member: str, decided: Verdict | None) -> FaultKind | None:
    if member not in panel.sealed:
        return FaultKind.NOT_COMMITTED
    vote = panel.votes.get(member)
    if vote is None:
        # Votes are asked for once they are opened; a panel that failed before owes nothing.
        return FaultKind.NOT_REVEALED if panel.is_open else None
    return None if decided is None else _dissent(vote, decided)


def _dissent(vote: Verdict, decided: Verdict) -> FaultKind | None:
    if vote_of(vote) == vote_of(decided):
        return None
    match vote.outcome, decided.outcome:
        case Outcome.ACCEPTED, Outcome.ACCEPTED:
            return (
                FaultKind.DISAGREED if _could_not_grade(vote) or _could_not_grade(decided) else FaultKind.FALSE_REWARDS
            )
        case Outcome.REJECTED, Outcome.ACCEPTED:
            return FaultKind.DISAGREED if _may_depend_on_machine(vote) else FaultKind.FALSE_REJECT
        case Outcome.ACCEPTED, Outcome.REJECTED:
            return FaultKind.DISAGREED if _may_depend_on_machine(decided) else FaultKind.FALSE_ACCEPT
        case _:  # one of them could not judge, or saw the version grow too old
            return None


def _may_depend_on_machine(rejection: Verdict) -> bool:
    return rejection.reason in MACHINES_DIFFER and rejection.measured.get(SLASHABLE, 0.0) < 1


def _could_not_grade(verdict: Verdict) -> bool:
    return any(name.startswith(GRADING_FAULT) for name in verdict.measured)
