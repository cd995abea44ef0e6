"""The time-limited loan of a slot to a node."""

from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_digests, require_names

ANY_CLASS = "any"
"""Of a machine that does not say what it can."""


class LeaseRequest(Record, frozen=True, kw_only=True):
    DOMAIN: ClassVar[str] = "farflung/lease-request/1"
    MAX_BYTES: ClassVar[int] = 4096

    node: str
    policy_version: int
    """The version that the node has loaded; the lease is for this one."""
    policy_digest: str
    capability_class: str = ANY_CLASS
    """Which thinking budgets the lease may ask for (`PoolSpec.capability_classes`)."""

    def __post_init__(self) -> None:
        require_names(node=self.node, capability_class=self.capability_class)
        require_counts(policy_version=self.policy_version)
        require_digests(policy_digest=self.policy_digest)


class Lease(Record, frozen=True, kw_only=True):
    """Fixes which tasks a node works on and the randomness that its tokens are drawn with.

    The node chooses neither: `task_indices` and `target_lengths` follow from the epoch's secret, the slot and the plan
    (`slots.curriculum`), target lengths also from the node's class; `draw_seed` is an HMAC (`slots.seeds`). In open
    pools nobody checks the signature.
    """

    DOMAIN: ClassVar[str] = "farflung/lease/1"

    pool_digest: str
    lease_id: str
    slot: int
    attempt: int
    """0 for the first loan of the slot; another attempt has other draws."""
    node: str
    policy_version: int
    policy_digest: str
    task_indices: tuple[int, ...]
    """One per group: index into the environment's training split."""
    target_lengths: tuple[int, ...]
    """One per group; 0 = no budget."""
    draw_seed: str
    """64 hex digits."""
    capability_class: str
    issued_at_ms: int
    expires_at_ms: int
    curriculum_digest: str = ""
    """Of the plan that the tasks follow from; empty = none."""
    signature: str = ""

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest, policy_digest=self.policy_digest, draw_seed=self.draw_seed)
        if self.curriculum_digest:
            require_digests(curriculum_digest=self.curriculum_digest)
        require_names(lease_id=self.lease_id, node=self.node, capability_class=self.capability_class)
        require_counts(slot=self.slot, attempt=self.attempt, policy_version=self.policy_version)
        require_counts(issued_at_ms=self.issued_at_ms)
        require_counts(at_least=self.issued_at_ms, expires_at_ms=self.expires_at_ms)
        for field in ("task_indices", "target_lengths"):
            require_counts(**{field: min(getattr(self, field), default=-1)})
        if len(self.task_indices) != len(self.target_lengths):
            raise ValueError(f"{len(self.task_indices)} tasks but {len(self.target_lengths)} target lengths")


class Forfeit(Record, frozen=True, kw_only=True):
    """A node gives a lease back; the slot goes to another node with other draws."""

    DOMAIN: ClassVar[str] = "farflung/forfeit/1"
    MAX_BYTES: ClassVar[int] = 4096

    node: str
    lease_id: str
    reason: str = ""
    signature: str = ""

    def __post_init__(self) -> None:
        require_names(node=self.node, lease_id=self.lease_id)
