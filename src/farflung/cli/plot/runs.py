"""Run folders as rows to draw. What is torn, missing or repeated never stops a picture."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farflung.cli.report.usage import Usage, fold
from farflung.cli.run_folder import RunFolder
from farflung.errors import UserError
from farflung.telemetry.metrics import MetricsRow, read_metrics

MAX_NAME_CHARS = 32
_SEED = re.compile(r"[-_.]?(?:seed|s)?[-_.]?\d+$")


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Run:
    """What a run has written, of several rows of one version the last."""

    name: str
    train: tuple[MetricsRow, ...]
    evals: tuple[MetricsRow, ...]
    nodes: tuple[MetricsRow, ...]
    """Heartbeats of its processes, oldest first."""
    usage: Usage
    start_s: float
    """When its first row was written."""

    @property
    def family(self) -> str:
        """The name without a number at its end: seeds of one experiment share it."""
        return _SEED.sub("", self.name) or self.name


def read_run(path: Path) -> Run:
    """A run's folder, or its metrics.jsonl.

    Raises:
        UserError: nothing there to draw.
    """
    root = path.parent if path.is_file() else path
    if not root.is_dir():
        raise UserError(f"{path} is no run: give the folder of a run, such as runs/demo")
    folder = RunFolder(root=root)
    rows = [row for row in read_metrics(folder.metrics) if _is_sound(row)]
    if not rows:
        raise UserError(f"{root} has no figures in metrics.jsonl yet: give the folder of a run that has begun")
    usage_rows = [row for row in read_metrics(folder.usage) if _is_sound(row)]
    return Run(
        name=plain(root.resolve().name),
        train=_last_of_each_version(rows, "train"),
        evals=_last_of_each_version(rows, "eval"),
        nodes=tuple(row for row in usage_rows if row["kind"] == "node"),
        usage=fold(usage_rows),
        start_s=min(row["time_s"] for row in rows),
    )


def number(row: Mapping[str, Any], name: str) -> float | None:
    """A figure of a row, None where it is absent or no finite number."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def plain(name: str) -> str:
    """A name from anywhere, as short text that no renderer reads as anything else: `$` begins a formula."""
    return "".join(c if c.isprintable() and c != "$" else "?" for c in name)[:MAX_NAME_CHARS]


def _is_sound(row: MetricsRow) -> bool:
    return number(row, "time_s") is not None


def _last_of_each_version(rows: Sequence[MetricsRow], kind: str) -> tuple[MetricsRow, ...]:
    by_version = {row["version"]: row for row in rows if row["kind"] == kind and isinstance(row.get("version"), int)}
    return tuple(by_version[version] for version in sorted(by_version))
