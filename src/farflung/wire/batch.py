"""Which rollouts made which version."""

from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_digests, require_names
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
    task_indices: tuple[int, ...] = ()
    """Of its last lease, one per group."""

    def __post_init__(self) -> None:
        require_counts(task_indices=min(self.task_indices, default=0))
        require_counts(sequence=self.sequence, slot=self.slot, policy_version=self.policy_version)
        if not self.state.is_final:
            raise ValueError(f"state {self.state}: an outcome is a final state")
        if self.state is SlotState.ACCEPTED and (self.submission is None or self.verdict is None):
            raise ValueError("an accepted slot has a submission and a verdict")


class BatchItem(Record, frozen=True, kw_only=True):
    """One accepted submission that a batch took, whole."""

    slot: int
    submission_digest: str
    file_digest: str
    policy_version: int
    groups_trained: tuple[int, ...]
    """Group positions that carried a gradient; the others of the slot had no signal or no grade."""

    def __post_init__(self) -> None:
        require_digests(submission_digest=self.submission_digest, file_digest=self.file_digest)
        require_counts(slot=self.slot, policy_version=self.policy_version)
        require_counts(groups_trained=min(self.groups_trained, default=0))


class SlotDrop(Record, frozen=True, kw_only=True):
    """An accepted slot that will never be trained on."""

    slot: int
    reason: str

    def __post_init__(self) -> None:
        require_counts(slot=self.slot)
        require_names(reason=self.reason)


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

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest)
        if self.previous_digest:
            require_digests(previous_digest=self.previous_digest)
        require_counts(policy_version=self.policy_version, optimizer_step=self.optimizer_step)
