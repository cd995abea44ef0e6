"""What the rule of provisioning needs to know of a pool, as far as a coordinator knows it."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.errors import UserError
from farflung.wire.manifest import Manifest
from farflung.wire.node import NodeStatus, PoolStatus, Role
from farflung.wire.pool import PoolSpec

MAX_BACK = 16
"""Versions that are looked at for sizes and times."""
SUBMITTED = ("submitted", "accepted", "rejected", "expired")
"""States of slots whose tokens were counted."""
MAY_BE_ZERO = ("judge_s", "latency_s", "max_staleness")


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What the rule needs; None = neither measured nor given."""

    step_s: float | None = None
    batch_tokens: float | None = None
    useful_share: float | None = None
    judge_s: float | None = 5.0
    max_staleness: int | None = None
    lease_tokens: float | None = None
    tokens_per_s: float | None = None
    patch_bytes: int | None = None
    snapshot_bytes: int | None = None
    chunk_bytes: int | None = None
    fan_out: int | None = 4
    depth: int | None = None
    latency_s: float | None = 0.05
    upload_bytes_per_s: float | None = None
    """Of the coordinator and of every relay, to say what it is enough for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Complete:
    """The same, all known and in their bounds."""

    step_s: float
    batch_tokens: float
    useful_share: float
    judge_s: float
    max_staleness: int
    lease_tokens: float
    tokens_per_s: float
    patch_bytes: int
    snapshot_bytes: int
    chunk_bytes: int
    fan_out: int
    depth: int
    latency_s: float
    upload_bytes_per_s: float | None


def complete(figures: Figures) -> Complete:
    """Raises UserError: a figure is lacking, or makes no sense."""
    values = asdict(figures)
    lacking = [_option(name) for name, value in values.items() if value is None and name != "upload_bytes_per_s"]
    if lacking:
        raise UserError(f"not measured yet, and not given: {', '.join(lacking)}")
    for name, value in values.items():
        if value is not None and (not 0 <= value < math.inf or (value == 0 and name not in MAY_BE_ZERO)):
            least = "at least" if name in MAY_BE_ZERO else "above"
            raise UserError(f"{_option(name)} is {value:g}: it must be {least} 0")
    if values["useful_share"] > 1:
        raise UserError(f"--useful-share is {values['useful_share']:g}: it is a share, at most 1")
    return Complete(**values)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


async def measure(url: str) -> tuple[Figures, int]:
    """What a coordinator knows, and how many workers are there. Raises `Transient` when nobody answers."""
    async with CoordinatorClient(url, node="plan", role=Role.COORDINATOR) as client:
        pool, status = await client.pool(), await client.status()
        manifests: list[Manifest] = []
        for version in range(status.policy_version, max(-1, status.policy_version - MAX_BACK), -1):
            try:
                manifests.append(await client.manifest(version))
            except Refused:
                break
    return measured(pool, status, manifests), len(_workers(status))


def measured(pool: PoolSpec, status: PoolStatus, manifests: Sequence[Manifest]) -> Figures:
    """The figures that can be read from a pool.

    Args:
        manifests: newest first, without gaps.
    """
    num_versions = max(0, status.policy_version)
    num_slots = sum(status.slots.get(state, 0) for state in SUBMITTED)
    rates = [node.heartbeat.tokens_per_s for node in _workers(status) if node.heartbeat.tokens_per_s > 0]
    patches = [manifest.patch.content.num_bytes for manifest in manifests if manifest.patch is not None]
    chunks = [chunk.num_bytes for manifest in manifests for file in manifest.promised_files for chunk in file.chunks]
    span_ms = manifests[0].published_at_ms - manifests[-1].published_at_ms if len(manifests) > 1 else 0
    generated, accepted = status.tokens_generated, status.tokens_accepted
    return Figures(
        step_s=span_ms / 1000 / (len(manifests) - 1) if span_ms > 0 else None,
        batch_tokens=accepted / num_versions if num_versions and accepted else None,
        useful_share=accepted / generated if accepted else None,
        max_staleness=pool.max_staleness,
        lease_tokens=generated / num_slots if num_slots and generated else None,
        tokens_per_s=min(rates, default=None),
        patch_bytes=round(sum(patches) / len(patches)) if patches else None,
        snapshot_bytes=sum(file.num_bytes for file in manifests[0].files) if manifests else None,
        chunk_bytes=max(chunks, default=None),
        depth=1 + _depth(status),
    )


def _workers(status: PoolStatus) -> list[NodeStatus]:
    return [node for node in status.nodes if node.heartbeat.role is Role.WORKER and node.is_alive]


def _depth(status: PoolStatus) -> int:
    """Relays between the coordinator and a worker, at most."""
    parents = {relay.url: relay.parent for relay in status.relays if not relay.problem}
    deepest = 0
    for url in parents:
        hops, at = 1, url
        while (at := parents.get(at, "")) and hops <= len(parents):
            hops += 1
        deepest = max(deepest, hops)
    return deepest
