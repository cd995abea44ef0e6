"""Rollouts as Parquet: one row per rollout, exact schema, no nulls, no extension types."""

from collections.abc import Sequence

from farflung.wire.limits import MAX_ROLLOUTS_PER_FILE, MAX_TOKENS_PER_LIST, MAX_UNCOMPRESSED_BYTES
from farflung.wire.rollout import Rollout


def write_rollouts(rollouts: Sequence[Rollout], pool_digest: str) -> bytes:
    """The file's bytes; equal rollouts give equal bytes with equal library versions."""
    raise NotImplementedError


def read_rollouts(
    data: bytes,
    *,
    pool_digest: str,
    max_rollouts: int = MAX_ROLLOUTS_PER_FILE,
    max_tokens_per_list: int = MAX_TOKENS_PER_LIST,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> list[Rollout]:
    """Rollouts of a stranger's file. Raises `PeerFault` for every violation and nothing else."""
    raise NotImplementedError
