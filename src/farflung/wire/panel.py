"""Several validators and one submission: sealed votes, and what is recorded against whoever breaks the rules."""

from enum import StrEnum
from typing import ClassVar

from farflung.wire.canonical import Record, tagged_digest
from farflung.wire.invariants import require_counts, require_digests, require_names
from farflung.wire.lease import Lease
from farflung.wire.submission import Submission
from farflung.wire.verdict import Judgement, Outcome, Verdict

MAX_PANEL = 32
"""Validators that one submission may be given to at once."""
NO_REWARDS = ""
"""Rewards digest of a verdict that does not accept."""


def seal(submission_digest: str, validator: str, outcome: Outcome, rewards_digest: str, salt: str) -> str:
    """The commitment to a vote: nobody can read the vote from it, nor its owner open it as another one.

    Args:
        salt: 64 hex digits that nobody else can guess.
    """
    fields = (submission_digest, validator, outcome.value, rewards_digest, salt)
    return tagged_digest("farflung/sealed-vote/1", *(field.encode() for field in fields))


class Commitment(Record, frozen=True, kw_only=True):
    """A validator has judged, and says so without saying how."""

    DOMAIN: ClassVar[str] = "farflung/commitment/1"
    MAX_BYTES: ClassVar[int] = 4096

    pool_digest: str
    submission_digest: str
    validator: str
    sealed: str
    """`seal` of its vote."""
    signature: str = ""

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest, submission_digest=self.submission_digest, sealed=self.sealed)
        require_names(validator=self.validator)


class Reveal(Record, frozen=True, kw_only=True):
    """The vote behind a commitment."""

    MAX_BYTES: ClassVar[int] = Judgement.MAX_BYTES + 4096

    judgement: Judgement
    salt: str

    def __post_init__(self) -> None:
        require_digests(salt=self.salt)


class FaultKind(StrEnum):
    """Everything that is recorded against a node."""

    NOT_COMMITTED = "not_committed"
    """A validator was drawn, and said nothing in time."""
    NOT_REVEALED = "not_revealed"
    """A validator committed to a vote, and did not show it in time."""
    DISAGREED = "disagreed"
    """A validator's verdict is not the quorum's, in figures that may differ between honest machines."""
    FALSE_REJECT = "false_reject"
    """It rejected what the quorum accepted, for a reason that does not depend on the machine."""
    FALSE_ACCEPT = "false_accept"
    """It accepted what the quorum rejected, likewise."""
    FALSE_REWARDS = "false_rewards"
    """It accepted as the quorum did, with other rewards."""
    ACCEPTED_RINGER = "accepted_ringer"
    """It accepted a file that was made to be rejected."""
    COPIED_CLAIMS = "copied_claims"
    """It gave rewards that a planted file claimed and that no grader gives."""
    TOO_MANY_FORFEITS = "too_many_forfeits"
    """A worker gave back, or let expire, more leases than the rules allow."""

    @property
    def forfeits_bond(self) -> bool:
        """No honest validator does it, whatever its hardware and however its network."""
        return self in _FORFEITING


_FORFEITING = frozenset(
    {
        FaultKind.FALSE_REJECT,
        FaultKind.FALSE_ACCEPT,
        FaultKind.FALSE_REWARDS,
        FaultKind.ACCEPTED_RINGER,
        FaultKind.COPIED_CLAIMS,
    }
)


class Fault(Record, frozen=True, kw_only=True):
    """What a node did, with what anyone needs to see that it did."""

    DOMAIN: ClassVar[str] = "farflung/fault/1"

    pool_digest: str
    node: str
    kind: FaultKind
    slot: int
    submission_digest: str = ""
    """Empty when it is about no submission."""
    verdict: Verdict | None = None
    """The node's own, with its signature."""
    contrary: Verdict | None = None
    """One of those that the quorum agreed on."""
    detail: str = ""

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest)
        require_names(node=self.node)
        require_counts(slot=self.slot)
        if self.submission_digest:
            require_digests(submission_digest=self.submission_digest)


class BondForfeit(Record, frozen=True, kw_only=True):
    """A validator's bond is lost. The first one counts; who has none gets nothing to judge."""

    DOMAIN: ClassVar[str] = "farflung/bond-forfeit/1"

    fault: Fault
    at_ms: int
    signature: str = ""
    """Of the coordinator."""

    def __post_init__(self) -> None:
        require_counts(at_ms=self.at_ms)
        if not self.fault.kind.forfeits_bond:
            raise ValueError(f"a fault of kind {self.fault.kind} costs no bond")


class RingerKind(StrEnum):
    """How a planted file is bad."""

    TOKENS = "tokens"
    """Some tokens are others than those that were drawn."""
    OTHER_SLOT = "other_slot"
    """It was made for another slot: other tasks, other draws."""
    OTHER_DRAWS = "other_draws"
    """Its tasks are right, its draws are another node's."""
    PROOF = "proof"
    """Its proofs were made without a model."""
    CLAIMS = "claims"
    """It is good, and claims rewards that no grader gives: to be accepted, with other rewards."""


class Ringer(Record, frozen=True, kw_only=True):
    """A file that the coordinator planted to see whether a validator looks. Nobody's work, so nobody is harmed."""

    DOMAIN: ClassVar[str] = "farflung/ringer/1"

    kind: RingerKind
    validator: str
    submission: Submission
    """Signed by a key that was made for it."""
    lease: Lease
    source_digest: str
    """Of the accepted submission that it was made from."""

    def __post_init__(self) -> None:
        require_names(validator=self.validator)
        require_digests(source_digest=self.source_digest)
