"""How many workers, and how fast a network, so that the trainer never waits and no rollout is too old.

Derivation. One step takes `step_s` and consumes `batch_tokens`. A rollout of version v is sampled by a worker that
has v, judged, and taken for a batch; while that goes on, the trainer publishes a version every `step_s`. Its
staleness when taken is therefore

    staleness = ceil((spread_s + lease_s + judge_s) / step_s)

    spread_s   from publication until the last worker has the version
    lease_s    sampling of one lease by the slowest worker: lease_tokens / tokens_per_s
    judge_s    receipt to verdict

so `max_staleness` versions leave `max_staleness * step_s` for the three, and what sampling and judging need not is
there for the network. The trainer never waits if workers sample a batch per step, of which a share is lost (no
signal, expired, rejected). A version spreads through a tree of relays chunk by chunk, each relay sending a chunk to
its children one after the other while it receives the next:

    spread_s = (num_chunks + depth - 1) * fan_out * chunk_bytes / upload_bytes_per_s + depth * latency_s

The last chunk leaves the origin after `num_chunks` rounds of `fan_out` sends, and each further level adds one round:
the pipelined tree of Echo-2 (arXiv 2602.02192), whose depth costs chunks, not files. Pure arithmetic; the figures are
the caller's measurements.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one policy version asks for."""

    step_s: float
    """Trainer's time per version when it does not wait."""
    batch_tokens: int
    """Sampled tokens that a version is trained on."""
    useful_share: float
    """Of sampled tokens, those that reach a batch; in (0, 1]."""
    judge_s: float
    max_staleness: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """How a version spreads."""

    fan_out: int
    depth: int
    """Hops from the origin to a worker."""
    chunk_bytes: int
    latency_s: float
    """Of one hop, request to first byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What has to be there."""

    num_workers: int
    upload_bytes_per_s: float
    """Of the origin and of every relay; infinite if sampling and judging alone take too long."""
    spread_s: float
    """What the network may take; negative if nothing is left for it."""

    @property
    def can_be_met(self) -> bool:
        return math.isfinite(self.upload_bytes_per_s)


def spread_s(version_bytes: int, tree: Tree, upload_bytes_per_s: float) -> float:
    """Seconds from publication until the last worker has a version of `version_bytes`."""
    return _rounds(version_bytes, tree) * tree.fan_out * tree.chunk_bytes / upload_bytes_per_s + _latency_s(tree)


def staleness(spread: float, lease_s: float, work: Work) -> int:
    """Versions between sampling and training, at most."""
    return math.ceil((spread + lease_s + work.judge_s) / work.step_s)


def need(work: Work, tree: Tree, *, version_bytes: int, lease_tokens: int, tokens_per_s: float) -> Need:
    """Workers and upload rate with which the trainer never waits and `max_staleness` holds.

    Args:
        version_bytes: of a patch in the steady state, of a snapshot in the worst.
        lease_tokens: sampled tokens of one lease.
        tokens_per_s: of one worker, the slowest that shall count.
    """
    num_workers = math.ceil(work.batch_tokens / (work.useful_share * tokens_per_s * work.step_s))
    left_s = work.max_staleness * work.step_s - work.judge_s - lease_tokens / tokens_per_s
    sending_s = left_s - _latency_s(tree)
    sent_bytes = _rounds(version_bytes, tree) * tree.fan_out * tree.chunk_bytes
    rate = sent_bytes / sending_s if sending_s > 0 else math.inf
    return Need(num_workers=num_workers, upload_bytes_per_s=rate, spread_s=left_s)


def _rounds(version_bytes: int, tree: Tree) -> int:
    return math.ceil(version_bytes / tree.chunk_bytes) + tree.depth - 1


def _latency_s(tree: Tree) -> float:
    return tree.depth * tree.latency_s
