"""Checkpoints whose content follows from their version, and a process that saves them for ever.

In a module of its own so that a child process finds it by name.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from farflung.trainer.checkpoint import Checkpoint, Checkpoints, Progress
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Manifest, Publication

DIGEST = sha256_hex(b"pool")


def checkpoint(version: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(version)
    masters = {f"layer.{index}": torch.randn(64, 65, generator=generator) for index in range(4)}
    manifest = Manifest(
        pool_digest=DIGEST,
        policy_version=version,
        policy_digest=sha256_hex(b"policy %d" % version),
        optimizer_step=version + 1,
        files=(),
        tensors=(),
        published_at_ms=version,
        expires_at_ms=version,
    )
    progress = Progress(
        pool_digest=DIGEST,
        policy_version=version,
        optimizer_step=version + 1,
        initial_accuracy=0.25,
        best_accuracy=0.5 + version / 1000,
        tokens_trained=100 * version,
        dropped_groups={"no_signal": version},
        buffer={"format": 1, "seen": [[0, version + 1]]},
    )
    return Checkpoint(
        progress=progress,
        publication=Publication(manifest=manifest),
        masters=masters,
        optimizer={"step/layer.0": torch.tensor(float(version)), "exp_avg/layer.0": masters["layer.0"] * 2},
    )


def save_for_ever(folder: Path, keep: int, first_version: int, saved: Callable[[int], None]) -> None:
    """Says each version after it is durable."""
    checkpoints = Checkpoints(folder, keep)
    version = first_version
    while True:
        checkpoints.save(checkpoint(version), is_best=version % 3 == 0)
        saved(version)
        version += 1
