"""Several validators on one submission: drawn after the receipt, sealed votes, one decision.

    DRAWN --(sealed votes, all or by the deadline)--> OPEN --(votes shown, all or by the deadline)--> decided or failed

    members    the first `size` of the candidates by HMAC(epoch's secret, submission digest, round, candidate)
    vote       (outcome, rewards digest); one that says "could not judge" is none
    decided    at least `quorum` equal votes. The quorum is more than half, so no two decisions ever tie
    failed     otherwise: another round with others; nobody is accepted, rejected or slashed for it

The worker has handed in before the draw, and does not know the secret; who knows it has committed to it before. So
neither chooses who judges, and anyone can draw again once the epoch is revealed. Nobody sees another's vote before all
are sealed, so copying one is no way to be paid without looking. Pure: no time, no randomness, no signatures.
"""

from collections.abc import Collection

from msgspec.structs import replace

from farflung.slots.illegal import IllegalEvent
from farflung.slots.seeds import keyed_hash
from farflung.wire.canonical import Record
from farflung.wire.panel import Commitment, seal
from farflung.wire.verdict import Outcome, Verdict


def draw_panel(
    secret: bytes, submission_digest: str, round_number: int, candidates: Collection[str], size: int
) -> tuple[str, ...]:
    """Who judges, in the order in which they were drawn; the same whatever the order of the candidates."""

    def place(candidate: str) -> tuple[bytes, str]:
        return keyed_hash(secret, "farflung/panel/1", submission_digest, round_number, candidate), candidate

    return tuple(sorted(set(candidates), key=place)[:size])


class Panel(Record, frozen=True, kw_only=True):
    """One round on one submission."""

    submission_digest: str
    round_number: int
    members: tuple[str, ...]
    commit_by_ms: int
    reveal_by_ms: int | None = None
    """None until the votes are opened."""
    sealed: dict[str, str] = {}
    """Member -> commitment, of those who committed."""
    votes: dict[str, Verdict] = {}
    """Member -> verdict, of those who showed it."""

    @property
    def is_open(self) -> bool:
        """Whether votes are shown: no more commitments."""
        return self.reveal_by_ms is not None

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Members who have to do something now."""
        if not self.is_open:
            return tuple(member for member in self.members if member not in self.sealed)
        return tuple(member for member in self.members if member in self.sealed and member not in self.votes)

    @property
    def deadline_ms(self) -> int:
        return self.commit_by_ms if self.reveal_by_ms is None else self.reveal_by_ms

    def owes(self, validator: str) -> bool:
        """Whether its work on this submission is not over: it still has to commit, or to show what it committed to."""
        if validator not in self.members or validator in self.votes:
            return False
        return validator in self.sealed or not self.is_open


def committed(panel: Panel, commitment: Commitment) -> Panel:
    """Raises `IllegalEvent`: no member, too late, or another commitment than before."""
    validator = commitment.validator
    if validator not in panel.members:
        raise IllegalEvent(f"{validator} was not drawn for this submission")
    before = panel.sealed.get(validator)
    if before is not None and before != commitment.sealed:
        raise IllegalEvent(f"{validator} committed to another vote before")
    if before is None and panel.is_open:
        raise IllegalEvent(f"{validator} commits after votes were shown")
    return replace(panel, sealed={**panel.sealed, validator: commitment.sealed})


def opened(panel: Panel, reveal_by_ms: int) -> Panel:
    """Raises `IllegalEvent`: it is open already."""
    if panel.is_open:
        raise IllegalEvent("votes are opened once")
    return replace(panel, reveal_by_ms=reveal_by_ms)


def revealed(panel: Panel, verdict: Verdict, salt: str) -> Panel:
    """Raises `IllegalEvent`: not open, or not what this member committed to."""
    validator = verdict.validator
    if not panel.is_open:
        raise IllegalEvent(f"{validator} shows its vote while others may still commit")
    if validator in panel.votes:
        raise IllegalEvent(f"{validator} has shown its vote")
    sealed = seal(panel.submission_digest, validator, verdict.outcome, verdict.rewards_digest, salt)
    if verdict.submission_digest != panel.submission_digest or panel.sealed.get(validator) != sealed:
        raise IllegalEvent(f"{validator} committed to another vote than {verdict.outcome}")
    return replace(panel, votes={**panel.votes, validator: verdict})


def decision(panel: Panel, quorum: int) -> Verdict | None:
    """Of those that agree the verdict of whoever was drawn first; None = there is no quorum."""
    counts: dict[tuple[Outcome, str], list[Verdict]] = {}
    for member in panel.members:
        verdict = panel.votes.get(member)
        if verdict is not None and verdict.outcome is not Outcome.UNJUDGED:
            counts.setdefault(vote_of(verdict), []).append(verdict)
    return next((verdicts[0] for verdicts in counts.values() if len(verdicts) >= quorum), None)


def vote_of(verdict: Verdict) -> tuple[Outcome, str]:
    return verdict.outcome, verdict.rewards_digest
