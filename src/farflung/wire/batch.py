"""Which rollouts made which version."""

from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.submission import Submission
from farflung.wire.verdict import SlotState, Verdict


class SlotOutcome(Record, frozen=True, kw_only=True):
    """One entry of the feed that the trainer reads: a slot reached its final state."""

    sequence: int
    slot: int
    state: SlotState
    policy_version: int
    submission: Submission | None = None
    verdict: Verdict | None = None


class BatchItem(Record, frozen=True, kw_only=True):
    """One accepted submission that a batch took, whole."""

    slot: int
    submission_digest: str
    file_digest: str
    policy_version: int
    groups_trained: tuple[int, ...]
    """Group positions that carried a gradient; the others of the slot had no signal or no grade."""


class SlotDrop(Record, frozen=True, kw_only=True):
    """An accepted slot that will never be trained on."""

    slot: int
    reason: str


class BatchRecord(Record, frozen=True, kw_only=True):
    """Links version `policy_version` to the accepted submissions that it was trained on."""

    DOMAIN: ClassVar[str] = "farflung/batch/1"

    pool_digest: str
    policy_version: int
    """The version that this batch produced."""
    optimizer_step: int
    items: tuple[BatchItem, ...]
    drops: tuple[SlotDrop, ...] = ()
    previous_digest: str = ""
    """Digest of the batch record of the version before; empty for the first."""
    signature: str = ""
