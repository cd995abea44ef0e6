"""What a worker hands in, and what it gets for it."""

from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_digests, require_names
from farflung.wire.lease import Lease


class UploadTicket(Record, frozen=True, kw_only=True):
    """Permission to write one object under a name that the coordinator chose."""

    DOMAIN: ClassVar[str] = "farflung/upload-ticket/1"

    lease_id: str
    key: str
    max_bytes: int
    expires_at_ms: int

    def __post_init__(self) -> None:
        require_names(lease_id=self.lease_id, key=self.key)
        require_counts(max_bytes=self.max_bytes, expires_at_ms=self.expires_at_ms)


class Submission(Record, frozen=True, kw_only=True):
    """The signed claim: this file holds the rollouts of this lease, sampled with this policy.

    Its digest names the submission everywhere, so handing it in twice is one submission.
    """

    DOMAIN: ClassVar[str] = "farflung/submission/1"
    MAX_BYTES: ClassVar[int] = 8192

    pool_digest: str
    node: str
    lease_id: str
    slot: int
    attempt: int
    policy_version: int
    policy_digest: str
    file_key: str
    file_digest: str
    """sha256 of the file."""
    file_bytes: int
    num_rollouts: int
    num_tokens: int
    """Completion tokens, for throughput figures; checked against the file."""
    signature: str = ""

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest, policy_digest=self.policy_digest, file_digest=self.file_digest)
        require_names(node=self.node, lease_id=self.lease_id, file_key=self.file_key)
        require_counts(slot=self.slot, attempt=self.attempt, policy_version=self.policy_version)
        require_counts(file_bytes=self.file_bytes, num_rollouts=self.num_rollouts, num_tokens=self.num_tokens)


class Receipt(Record, frozen=True, kw_only=True):
    """The coordinator's promise that the submission will be judged by `deadline_ms`."""

    DOMAIN: ClassVar[str] = "farflung/receipt/1"

    submission_digest: str
    sequence: int
    """Position in the coordinator's log."""
    epoch: int
    received_at_ms: int
    deadline_ms: int
    signature: str = ""

    def __post_init__(self) -> None:
        require_digests(submission_digest=self.submission_digest)
        require_counts(sequence=self.sequence, epoch=self.epoch, received_at_ms=self.received_at_ms)
        require_counts(at_least=self.received_at_ms, deadline_ms=self.deadline_ms)


class Assignment(Record, frozen=True, kw_only=True):
    """Work for a validator: the submission with the lease that it must match."""

    submission: Submission
    lease: Lease
    is_sealed: bool = False
    """Others judge it too: commit to the verdict first, and show it when asked to (`wire.panel`)."""
    audited_rollout: int | None = None
    """Position of the rollout to sample again from its draw seed, while all are graded twice; None = no such audit."""
