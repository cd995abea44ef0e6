"""What happens to slots: the events that the ledger steps on, in the form in which they are logged.

An event is a fact with its time, decided before it is written down; replaying the facts gives the same ledger. This
module does not know which facts are possible when (`slots.lifecycle`).
"""

from farflung.wire.batch import BatchRecord
from farflung.wire.canonical import Record
from farflung.wire.lease import Lease
from farflung.wire.panel import BondForfeit, Commitment, Fault, Ringer
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import Verdict


class VersionPublished(Record, frozen=True, kw_only=True):
    """A version is the newest from now on; what falls out of the staleness window ends."""

    policy_version: int
    policy_digest: str


class BatchRecorded(Record, frozen=True, kw_only=True):
    """Accepted slots were trained on, or will never be. Comes before the `VersionPublished` that it made."""

    batch: BatchRecord


class LeaseGranted(Record, frozen=True, kw_only=True):
    """A new slot (attempt 0), or a vacant one again, belongs to a node until the lease expires."""

    lease: Lease


class LeaseExpired(Record, frozen=True, kw_only=True):
    """The node was too slow, or fell silent."""

    slot: int
    at_ms: int
    reason: str


class Forfeited(Record, frozen=True, kw_only=True):
    """The node gave the lease back."""

    slot: int
    at_ms: int
    reason: str


class Submitted(Record, frozen=True, kw_only=True):
    """The node handed its work in and has the receipt."""

    submission: Submission
    receipt: Receipt


class VerdictRecorded(Record, frozen=True, kw_only=True):
    """A validator judged, or (outcome `unjudged`) could not."""

    slot: int
    verdict: Verdict


class JudgingLapsed(Record, frozen=True, kw_only=True):
    """A validator took the submission and was not heard of in time."""

    slot: int
    validator: str


class PanelDrawn(Record, frozen=True, kw_only=True):
    """These validators judge the submission (`slots.panel.draw_panel`)."""

    slot: int
    at_ms: int
    round_number: int
    candidates: tuple[str, ...]
    """Whom the draw was among: validators that were there, in order of name."""
    members: tuple[str, ...]
    commit_by_ms: int


class VoteSealed(Record, frozen=True, kw_only=True):
    """A validator has judged, and nobody knows how."""

    slot: int
    commitment: Commitment


class VotesOpened(Record, frozen=True, kw_only=True):
    """All have committed, or the time for it is over: votes are shown now."""

    slot: int
    at_ms: int
    reveal_by_ms: int


class VoteShown(Record, frozen=True, kw_only=True):
    """The vote behind a commitment."""

    slot: int
    verdict: Verdict
    salt: str


class PanelFailed(Record, frozen=True, kw_only=True):
    """No quorum in this round; another one follows, or the slot is closed."""

    slot: int
    at_ms: int


class FaultRecorded(Record, frozen=True, kw_only=True):
    """Something that a node did, and that costs no bond."""

    fault: Fault
    at_ms: int


class BondForfeited(Record, frozen=True, kw_only=True):
    """A validator lost its bond. It is given nothing to judge any more."""

    forfeit: BondForfeit


class RingerPlanted(Record, frozen=True, kw_only=True):
    """A file that has to be rejected is about to be given to a validator."""

    ringer_digest: str
    at_ms: int
    ringer: Ringer | None = None
    """None in what others are shown: they learn it from `RingerEnded`."""


class RingerEnded(Record, frozen=True, kw_only=True):
    """A planted file was judged, or (no verdict) not in time. Nothing follows from it for any worker."""

    ringer: Ringer
    verdict: Verdict | None
    at_ms: int


class SlotClosed(Record, frozen=True, kw_only=True):
    """Nobody will take this vacant slot any more, or nobody was able to judge this submission."""

    slot: int
    reason: str


Event = (
    VersionPublished
    | BatchRecorded
    | LeaseGranted
    | LeaseExpired
    | Forfeited
    | Submitted
    | VerdictRecorded
    | JudgingLapsed
    | PanelDrawn
    | VoteSealed
    | VotesOpened
    | VoteShown
    | PanelFailed
    | FaultRecorded
    | BondForfeited
    | RingerPlanted
    | RingerEnded
    | SlotClosed
)
PanelEvent = PanelDrawn | VoteSealed | VotesOpened | VoteShown | PanelFailed
"""Of pools in which several validators judge a submission."""
