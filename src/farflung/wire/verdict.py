"""A validator's finding on one submission, with the evidence that it rests on."""

from enum import StrEnum
from typing import ClassVar

from farflung.wire.canonical import Record


class Blame(StrEnum):
    """Who pays for an outcome."""

    NOBODY = "nobody"
    PEER = "peer"
    OURS = "ours"
    TRANSIENT = "transient"


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    """By a peer's fault."""
    EXPIRED = "expired"
    """Honest but made stale by our own queue: paid, not trained on."""
    UNJUDGED = "unjudged"
    """The validator could not judge (its own fault or a passing one): retried elsewhere, never slashed."""


class RejectReason(StrEnum):
    """Every reason for which a submission is not accepted, in the order in which the checks run."""

    FILE_MISSING = "file_missing"
    FILE_TOO_LARGE = "file_too_large"
    FILE_DIGEST = "file_digest"
    MALFORMED_RECORD = "malformed_record"
    FOOTER_LIMITS = "footer_limits"
    SCHEMA = "schema"
    WRONG_POOL = "wrong_pool"
    WRONG_LEASE = "wrong_lease"
    VERSION_WINDOW = "version_window"
    ROLLOUT_COUNT = "rollout_count"
    WRONG_TASK = "wrong_task"
    PROMPT = "prompt"
    TOKEN_RANGE = "token_range"
    TERMINATION = "termination"
    TARGET_LENGTH = "target_length"
    LOGPROB_RANGE = "logprob_range"
    VALIDATOR_FAULT = "validator_fault"

    @property
    def blame(self) -> Blame:
        if self is RejectReason.VERSION_WINDOW:
            return Blame.NOBODY
        if self is RejectReason.FILE_MISSING:
            return Blame.TRANSIENT
        if self is RejectReason.VALIDATOR_FAULT:
            return Blame.OURS
        return Blame.PEER


class RewardResult(Record, frozen=True, kw_only=True):
    """The validator's own grade of one rollout."""

    group: int
    sample: int
    reward: float | None
    """None = cannot be graded: no gradient, no place in the group's mean."""
    components: dict[str, float] = {}
    """Named parts, for metrics, e.g. {"answer": 1.0, "length": -0.2}."""


class EvidenceBundle(Record, frozen=True, kw_only=True):
    """What an auditor needs to repeat the verdict."""

    DOMAIN: ClassVar[str] = "farflung/evidence/1"
    MAX_BYTES: ClassVar[int] = 16 << 20

    submission_digest: str
    rewards: tuple[RewardResult, ...]
    detail: str = ""
    """For a rejection: the check and the offending value."""


class Verdict(Record, frozen=True, kw_only=True):
    """A function of bytes, evidence and rules."""

    DOMAIN: ClassVar[str] = "farflung/verdict/1"
    MAX_BYTES: ClassVar[int] = 65536

    pool_digest: str
    submission_digest: str
    validator: str
    outcome: Outcome
    reason: RejectReason | None = None
    evidence_digest: str
    measured: dict[str, float] = {}
    judged_at_ms: int
    signature: str = ""


class Judgement(Record, frozen=True, kw_only=True):
    """What a validator posts: the verdict and the bundle that its `evidence_digest` names."""

    MAX_BYTES: ClassVar[int] = 17 << 20

    verdict: Verdict
    evidence: EvidenceBundle


class SlotState(StrEnum):
    """Where a slot stands. The last four are final, and every slot ends in exactly one of them."""

    LEASED = "leased"
    SUBMITTED = "submitted"
    VACANT = "vacant"
    """Forfeited or lease expired with attempts left: waits for the next node."""
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    EXPIRED = "expired"
    FORFEITED = "forfeited"

    @property
    def is_final(self) -> bool:
        return self in (SlotState.ACCEPTED, SlotState.REJECTED, SlotState.EXPIRED, SlotState.FORFEITED)
