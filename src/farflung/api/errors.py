"""What a call to the coordinator can fail with, beside `Transient` (connection trouble, 5xx: try again)."""

from enum import StrEnum

from farflung.errors import FarflungError


class RefusalReason(StrEnum):
    """Machine-readable cause of a refusal. The caller broke a rule; the same call again is refused again."""

    BAD_REQUEST = "bad_request"
    """A parameter is missing, malformed or out of range."""
    MALFORMED_RECORD = "malformed_record"
    """The body is not the record that the route takes."""
    TOO_LARGE = "too_large"
    """The body exceeds the route's limit."""
    NO_ROUTE = "no_route"
    NOT_FOUND = "not_found"
    """No such manifest, object or chunk; perhaps not any more."""
    BAD_TOKEN = "bad_token"
    """The role needs the pool's secret token for it, and another or none was shown."""
    WRONG_ROLE = "wrong_role"
    """The route is for another role."""
    WRONG_NODE = "wrong_node"
    """The record names another node than the caller."""
    WRONG_POOL = "wrong_pool"
    """The record carries the digest of other pool rules."""
    WRONG_POLICY = "wrong_policy"
    """No version with this number and policy digest was published."""
    UNKNOWN_LEASE = "unknown_lease"
    """No such lease, or so old that it was forgotten."""
    LEASE_OVER = "lease_over"
    """The lease expired, was forfeited, or was used for another submission."""
    UNKNOWN_UPLOAD = "unknown_upload"
    """No open ticket names this key."""
    EMPTY_WORK = "empty_work"
    """A submission that claims no rollouts, no tokens or no bytes."""
    LEASE_MISMATCH = "lease_mismatch"
    """The submission does not repeat what its lease says."""
    FILE_MISSING = "file_missing"
    """The submission names a file that was not uploaded, or has another size."""
    DIGEST_MISMATCH = "digest_mismatch"
    """The bytes do not have the digest that they are announced under."""
    UNKNOWN_SUBMISSION = "unknown_submission"
    """No such submission, or so old that it was forgotten."""
    NOT_ASSIGNED = "not_assigned"
    """A verdict from a validator that does not hold the assignment, or on its own node's work."""
    CURRICULUM = "curriculum"
    """The manifest names another plan than the one that came with it, or the plan is not for this pool's tasks."""
    BAD_SIGNATURE = "bad_signature"
    """The manifest is not signed, or not by the key that signed the first one."""
    VERSION_ORDER = "version_order"
    """Versions are consecutive and never replaced by other content."""
    CHUNK_MISSING = "chunk_missing"
    """A manifest was announced before all its chunks were there."""
    BATCH_LINK = "batch_link"
    """A batch record names a slot that is not accepted, or was consumed or dropped before."""


class Refused(FarflungError):
    """The coordinator said no.

    Args:
        reason: a `RefusalReason` value (a string, so that a newer coordinator's reasons pass).
        message: one sentence with the value and the rule.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{message} [{reason}]")
        self.reason = reason
        self.message = message
