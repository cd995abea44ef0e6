"""A validator's finding on one submission, with the evidence that it rests on."""

from enum import StrEnum
from itertools import pairwise
from typing import ClassVar

from farflung.wire.canonical import Record, canonical_json, tagged_digest
from farflung.wire.invariants import require_counts, require_digests, require_finite, require_names
from farflung.wire.proof import RolloutFigures

GRADING_FAULT = "grading_fault/"
"""Names in `Verdict.measured` that start so count completions which could not be graded, by what went wrong."""
SLASHABLE = "proof/slashable"
"""In `Verdict.measured`: 1 if the figures are beyond what any honest machine gives, 0 if another should look again."""


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
    TRANSCRIPT = "transcript"
    """An episode that the environment would not have played so."""
    TARGET_LENGTH = "target_length"
    LOGPROB_RANGE = "logprob_range"
    PROOF_SHAPE = "proof_shape"
    ACTIVATIONS = "activations"
    DRAWS = "draws"
    LOGPROBS = "logprobs"
    REGENERATION = "regeneration"
    """Sampled again from its draw seed, it becomes another text, and not for want of digits."""
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

    @property
    def outcome(self) -> Outcome:
        """The only outcome that this reason can have: nobody is rejected for what was not their fault."""
        if self.blame is Blame.PEER:
            return Outcome.REJECTED
        return Outcome.EXPIRED if self.blame is Blame.NOBODY else Outcome.UNJUDGED


class RewardResult(Record, frozen=True, kw_only=True):
    """The validator's own grade of one rollout."""

    group: int
    sample: int
    reward: float | None
    """None = cannot be graded: no gradient, no place in the group's mean."""
    correct: float | None = None
    """1 if the task itself was solved, without shaping; None = the environment does not say."""
    components: dict[str, float] = {}
    """Named parts, for metrics, e.g. {"answer": 1.0, "length": -0.2}."""
    spans: tuple[tuple[int, int], ...] = ()
    """[start, end) of each turn of the model, in completion tokens; empty = the whole completion."""
    turn_rewards: tuple[float, ...] = ()
    """One per span, which sum to the reward; empty = judged by outcome alone."""

    def __post_init__(self) -> None:
        require_counts(group=self.group, sample=self.sample)
        require_finite("reward or correct", (value for value in (self.reward, self.correct) if value is not None))
        require_finite("components", self.components.values())
        require_finite("turn_rewards", self.turn_rewards)
        bounds = [0, *(bound for span in self.spans for bound in span)]
        if any(after < before for before, after in pairwise(bounds)) or any(start >= end for start, end in self.spans):
            raise ValueError(f"spans {self.spans}: they must be in order, apart, and none empty")
        if self.turn_rewards and len(self.turn_rewards) != len(self.spans):
            raise ValueError(f"{len(self.turn_rewards)} rewards of turns but {len(self.spans)} spans")


class EvidenceBundle(Record, frozen=True, kw_only=True):
    """What an auditor needs to repeat the verdict."""

    DOMAIN: ClassVar[str] = "farflung/evidence/1"
    MAX_BYTES: ClassVar[int] = 16 << 20

    submission_digest: str
    rewards: tuple[RewardResult, ...]
    detail: str = ""
    """For a rejection: the check and the offending value."""
    figures: tuple[RolloutFigures, ...] = ()
    """Of every rollout, in pools with proofs, once they were looked at."""

    def __post_init__(self) -> None:
        require_digests(submission_digest=self.submission_digest)

    @property
    def rewards_digest(self) -> str:
        """What validators have to agree on: the worth of each rollout and of its turns; empty without rewards."""
        if not self.rewards:
            return ""
        worth = [[each.group, each.sample, each.reward, each.correct, *each.turn_rewards] for each in self.rewards]
        return tagged_digest("farflung/rewards/1", canonical_json(worth))


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
    rewards_digest: str = ""
    """`EvidenceBundle.rewards_digest`; empty unless accepted."""
    measured: dict[str, float] = {}
    judged_at_ms: int
    signature: str = ""

    def __post_init__(self) -> None:
        require_digests(
            pool_digest=self.pool_digest,
            submission_digest=self.submission_digest,
            evidence_digest=self.evidence_digest,
        )
        require_names(validator=self.validator)
        require_finite("measured", self.measured.values())
        require_counts(judged_at_ms=self.judged_at_ms)
        expected = Outcome.ACCEPTED if self.reason is None else self.reason.outcome
        if self.outcome is not expected:
            raise ValueError(f"outcome {self.outcome} for reason {self.reason}: it must be {expected}")


class Judgement(Record, frozen=True, kw_only=True):
    """What a validator posts: the verdict and the bundle that its `evidence_digest` names."""

    MAX_BYTES: ClassVar[int] = 17 << 20

    verdict: Verdict
    evidence: EvidenceBundle

    def __post_init__(self) -> None:
        if self.verdict.submission_digest != self.evidence.submission_digest:
            raise ValueError(
                f"evidence on {self.evidence.submission_digest}, verdict on {self.verdict.submission_digest}"
            )
        if self.verdict.evidence_digest != self.evidence.digest():
            raise ValueError(f"the verdict rests on evidence {self.verdict.evidence_digest}, not on this")
        if self.verdict.rewards_digest not in ("", self.evidence.rewards_digest):
            raise ValueError(f"the verdict is about rewards {self.verdict.rewards_digest}, not about these")


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
