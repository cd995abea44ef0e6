"""The rules of a pool about checking: how many judge, how often the dear checks run, how many leases may be lost."""

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_finite
from farflung.wire.panel import MAX_PANEL


class CheckRules(Record, frozen=True, kw_only=True):
    """Part of `PoolSpec`."""

    validators_per_submission: int = 1
    """Drawn for each submission after its receipt. 1 = whoever asks first judges alone."""
    quorum: int = 1
    """Validators that have to agree on outcome and rewards; more than half."""
    audit_rate: float = 0.0
    """Share of submissions of which a rollout is sampled again and everything is graded twice."""
    audit_first: int = 0
    """Accepted submissions of a node before that share; until then each is audited."""
    forfeit_allowance: int = 8
    """Leases that a node may lose without work, beside the share."""
    forfeit_share: float = 0.1
    """Of its leases; one more is a fault."""

    def __post_init__(self) -> None:
        size, quorum = self.validators_per_submission, self.quorum
        require_counts(at_least=1, validators_per_submission=size, quorum=quorum)
        require_counts(audit_first=self.audit_first, forfeit_allowance=self.forfeit_allowance)
        if not size < 2 * quorum <= 2 * size or size > MAX_PANEL:
            raise ValueError(
                f"a quorum of {quorum} among {size} validators: it must be more than half of them, and they at most "
                f"{MAX_PANEL}"
            )
        require_finite("shares", (self.audit_rate, self.forfeit_share))
        if not 0 <= self.audit_rate <= 1 or not 0 <= self.forfeit_share <= 1:
            raise ValueError(f"audit_rate {self.audit_rate}, forfeit_share {self.forfeit_share}: each lies in [0, 1]")
