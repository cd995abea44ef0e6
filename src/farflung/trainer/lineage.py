"""What a run's learning follows from, kept in its checkpoints, and what of it may change when a run goes on.

    FREE     how fast, how long, how often looked at: a run may be continued with other values
    FIXED    the mathematics: refused with the difference, unless trainer.accept_changes says to go on knowingly
    data     a digest of tasks (`envs.digest`); numerics: dtype of the weights, torch

Every setting of the trainer is in exactly one of FREE and FIXED; one that is in neither counts as fixed. Reads and
compares values only: no files, no torch.
"""

import json
from collections.abc import Mapping

from farflung.config import fields
from farflung.config.base import Config
from farflung.errors import UserError
from farflung.wire.canonical import Record

FREE = (
    "accept_changes",
    "checkpoint.",
    "compute.activation_checkpointing",
    "evaluation.every_versions",
    "evaluation.max_accuracy_drop",
    "heartbeat_s",
    "max_versions",
    "num_samples_logged",
    "poll_s",
    "regrade_share",
    "snapshot_every",
    "unreachable_s",
)
FIXED = (
    "batch_counts",
    "chunk_bytes",
    "compute.device",
    "compute.dtype",
    "curriculum.",
    "evaluation.environment",
    "evaluation.environment_args",
    "evaluation.num_tasks",
    "evaluation.temperature",
    "lora.",
    "max_sampled_per_batch",
    "micro_batch_tokens",
    "model.",
    "objective.",
    "optimizer.",
    "shaping.",
    "warm_start.",
    "window_slots",
)
"""Keys, or sections with a dot at their end."""


class Lineage(Record, frozen=True, kw_only=True):
    """Of one checkpoint, or of the trainer as it is configured now."""

    settings: dict[str, str]
    """Dotted key -> value as JSON, of every setting of the trainer."""
    data_digest: str
    dtype: str
    """Of the masters."""
    software: dict[str, str]
    """Name -> version of what computes and of what makes the tasks."""


def settings_of(config: Config) -> dict[str, str]:
    """As `Lineage.settings`."""
    flat = fields.flatten(config.model_dump(mode="json"))
    return {key: json.dumps(value, sort_keys=True) for key, value in flat.items()}


def is_free(key: str) -> bool:
    """Whether a run may be continued with another value of this setting of the trainer."""
    return any(key.startswith(prefix) if prefix.endswith(".") else key == prefix for prefix in FREE)


def changes(before: Lineage, after: Lineage, defaults: Mapping[str, str]) -> list[str]:
    """What is not as it was and changes what is learned, a line each.

    Args:
        defaults: as `Lineage.settings`. A setting that `before` does not know is newer than it, and its default does
            what was done then: an upgrade ends no run.
    """
    known = {**{key: defaults[key] for key in after.settings.keys() & defaults.keys()}, **before.settings}
    lines = [
        f"trainer.{key}: {_shown(before.settings, key)} -> {_shown(after.settings, key)}"
        for key in sorted(known.keys() | after.settings.keys())
        if not is_free(key) and known.get(key) != after.settings.get(key)
    ]
    if before.data_digest != after.data_digest:
        lines.append(f"tasks of the environment: {before.data_digest[:16]} -> {after.data_digest[:16]}")
    if before.dtype != after.dtype:
        lines.append(f"dtype of the weights: {before.dtype} -> {after.dtype}")
    return lines


def software_changes(before: Lineage, after: Lineage) -> list[str]:
    """Other versions give other last bits, if anything: refused in deterministic mode only."""
    return [
        f"{name}: {before.software.get(name, 'absent')} -> {after.software.get(name, 'absent')}"
        for name in sorted(before.software.keys() | after.software.keys())
        if before.software.get(name) != after.software.get(name)
    ]


def refuse(lines: list[str]) -> None:
    """Raises `UserError` with the differences, if there are any."""
    if lines:
        shown = "\n".join(f"  - {line}" for line in lines)
        raise UserError(
            f"this run was trained with other settings, data or numerics:\n{shown}\n"
            "continue it as it was, start another with --run.name NAME, or go on knowingly with "
            "--trainer.accept_changes true, which metrics.jsonl will say"
        )


def _shown(settings: Mapping[str, str], key: str) -> str:
    return settings.get(key, "absent")
