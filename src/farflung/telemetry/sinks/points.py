"""Rows of a run's files as named figures at a step.

| row         | names                                                                   |
|-------------|-------------------------------------------------------------------------|
| `train`     | as they are: `reward/mean`, `grad_norm`, `drops/stale`, ...              |
| `pool`      | `pool/tokens_generated`, `pool/slots/accepted`, `pool/drops/no_signal`    |
| any other   | with their kind in front: `eval/accuracy`, `warm_start/loss`             |

Texts and what is not finite have no place on a chart and are left out.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

KINDS = frozenset({"train", "eval", "warm_start", "rollback", "progress", "pool"})
NOT_FIGURES = frozenset({"time_s", "kind", "version", "step", "session"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Figures that were told together."""

    time_s: float
    """Seconds since the epoch."""
    step: int
    """Policy version; 0 before the first."""
    figures: dict[str, float]


def points(rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    """One for each row that has figures, in order."""
    found = (_point(row) for row in rows if row.get("kind") in KINDS)
    return [point for point in found if point is not None]


def _point(row: Mapping[str, Any]) -> Point | None:
    kind = row["kind"]
    prefix = "" if kind == "train" else f"{kind}/"
    figures = dict(_figures(row, prefix))
    step, time_s = row.get("version", row.get("step", 0)), row.get("time_s")
    if not figures or not isinstance(step, int) or not isinstance(time_s, int | float):
        return None
    return Point(time_s=float(time_s), step=max(0, step), figures=figures)


def _figures(row: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _figures(value, f"{prefix}{name}/")
        elif name not in NOT_FIGURES and isinstance(value, int | float) and math.isfinite(value):
            yield f"{prefix}{name}", float(value)
