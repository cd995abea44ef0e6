"""Deterministic mode: what becomes of a slot is a function of its number, whoever works on it and however often.

    batch of a slot      b = slot // (groups_per_batch / groups_per_slot)        makes version b + 1
    sampled by version   max(0, b - max_staleness)                               max_staleness 0 = synchronous
    draws                HMAC(secret of the pool's seed, policy digest, slot)    the same for every node and attempt

So a slot that was lost or refused is leased again with the same version and the same draws, and nothing is passed over.
The secret is no secret here: anyone can recompute it, so this mode is for nodes that one trusts.
"""

from farflung.slots.seeds import keyed_hash
from farflung.wire.pool import PoolSpec

ANYBODY = ""
"""Whose draws they are: no node's, so every node's."""


def secret_of(seed: int) -> bytes:
    """The epoch secret of a deterministic pool."""
    return keyed_hash(b"farflung", "farflung/deterministic-secret/1", seed)


def slots_per_batch(rules: PoolSpec) -> int:
    """Slots that make one version; a batch is whole slots."""
    return -(-rules.groups_per_batch // rules.groups_per_slot)


def version_for(rules: PoolSpec, slot: int) -> int:
    """The version that samples this slot."""
    return max(0, slot // slots_per_batch(rules) - rules.max_staleness)
