"""What a worker hands in, and what it gets for it."""

from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.lease import Lease


class UploadTicket(Record, frozen=True, kw_only=True):
    """Permission to write one object under a name that the coordinator chose."""

    DOMAIN: ClassVar[str] = "farflung/upload-ticket/1"

    lease_id: str
    key: str
    max_bytes: int
    expires_at_ms: int


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


class Assignment(Record, frozen=True, kw_only=True):
    """Work for a validator: the submission with the lease that it must match."""

    submission: Submission
    lease: Lease
