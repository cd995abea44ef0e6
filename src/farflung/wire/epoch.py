"""What everybody may know of an epoch: the commitment while it runs, the secret once its work has ended."""

from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_digests


class EpochNotice(Record, frozen=True, kw_only=True):
    """A stretch of slots whose tasks, target lengths and draws follow from one secret (`slots.seeds`)."""

    DOMAIN: ClassVar[str] = "farflung/epoch-notice/1"

    pool_digest: str
    number: int
    first_slot: int
    commitment: str
    """`slots.seeds.commit_secret` of the secret; known before the first lease."""
    opened_at_ms: int
    end_slot: int | None = None
    """First slot that belongs to the next epoch; None while this one runs."""
    secret: str = ""
    """64 hex digits; empty until every slot of the epoch has ended."""

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest, commitment=self.commitment)
        require_counts(number=self.number, first_slot=self.first_slot, opened_at_ms=self.opened_at_ms)
        if self.end_slot is not None:
            require_counts(at_least=self.first_slot, end_slot=self.end_slot)
        if self.secret:
            require_digests(secret=self.secret)
            if self.end_slot is None:
                raise ValueError("a secret of an epoch that still runs: nobody may know the draws of its next slots")


class EpochNotices(Record, frozen=True, kw_only=True):
    """Those that are remembered, oldest first."""

    MAX_BYTES: ClassVar[int] = 4 << 20

    items: tuple[EpochNotice, ...]
