"""The state of a curriculum as JSON-able data for a checkpoint, and back, bit for bit.

Tasks are columns of little-endian numbers in base64, ascending by task: 28 characters a task, where JSON of their rates
would take twice that. This module does not know checkpoints.
"""

import base64
import binascii
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farflung.rl.curriculum import MAX_UNSOLVED, CurriculumState, StratumStat, TaskStat
from farflung.wire.pool import MAX_STRATA

FORMAT = 1
MAX_TASKS = 100_000
"""Of a snapshot that is read: 2.8 MB, well inside a checkpoint's record."""
COLUMNS = {"tasks": "<i8", "rates": "<f8", "unsolved": "<i1", "versions": "<i4"}
_MAX_COLUMN_CHARS = MAX_TASKS * 8 * 4 // 3 + 4


def to_snapshot(state: CurriculumState) -> dict[str, object]:
    """Strings, numbers and lists."""
    items = sorted(state.tasks.items())
    columns: dict[str, list[Any]] = {
        "tasks": [task for task, _ in items],
        "rates": [stat.rate for _, stat in items],
        "unsolved": [stat.num_unsolved for _, stat in items],
        "versions": [stat.last_version for _, stat in items],
    }
    return {
        "format": FORMAT,
        **{name: _encoded(np.array(values, dtype=COLUMNS[name])) for name, values in columns.items()},
        "strata": [list(stat) for stat in state.strata],
    }


def from_snapshot(snapshot: dict[str, object], num_strata: int) -> CurriculumState:
    """The state that made the snapshot.

    Raises:
        ValueError: another format, another number of strata, or data that is damaged or beyond its bounds.
    """
    if snapshot.get("format") != FORMAT:
        raise ValueError(f"the curriculum has format {snapshot.get('format')!r}: this version reads {FORMAT}")
    columns = {name: _decoded(name, snapshot.get(name)) for name in COLUMNS}
    counts = {name: len(values) for name, values in columns.items()}
    if len(set(counts.values())) != 1 or counts["tasks"] > MAX_TASKS:
        raise ValueError(f"the curriculum has columns of {counts}: equally many of each, at most {MAX_TASKS}")
    rates, unsolved, tasks = columns["rates"], columns["unsolved"], columns["tasks"]
    in_bounds = np.all((rates >= 0) & (rates <= 1)) and np.all((unsolved >= 0) & (unsolved <= MAX_UNSOLVED))
    if not in_bounds or np.any(tasks < 0) or np.any(np.diff(tasks) <= 0):
        raise ValueError("the curriculum has rates outside [0, 1], counts out of range, or tasks that do not ascend")
    stats = zip(rates.tolist(), unsolved.tolist(), columns["versions"].tolist(), strict=True)
    return CurriculumState(
        tasks={task: TaskStat(*stat) for task, stat in zip(tasks.tolist(), stats, strict=True)},
        strata=_strata(snapshot.get("strata"), num_strata),
    )


def _strata(rows: object, num_strata: int) -> tuple[StratumStat, ...]:
    if not isinstance(rows, list) or len(rows) != num_strata or num_strata > MAX_STRATA:
        raise ValueError(f"the curriculum has strata {str(rows)[:80]}: there are {num_strata}")
    stats = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 3 or not all(isinstance(value, int | float) for value in row):
            raise ValueError(f"the curriculum has stratum {str(row)[:80]}: a rate, a value and a count")
        rate, value, num_groups = row
        if not (0 <= rate <= 1 and 0 <= value <= 1 and num_groups >= 0):
            raise ValueError(f"the curriculum has stratum {row}: rate and value in [0, 1], a count from 0")
        stats.append(StratumStat(float(rate), float(value), int(num_groups)))
    return tuple(stats)


def _encoded(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def _decoded(name: str, text: object) -> NDArray[Any]:
    if not isinstance(text, str) or len(text) > _MAX_COLUMN_CHARS:
        raise ValueError(f"column {name} of the curriculum is no text, or longer than {_MAX_COLUMN_CHARS} characters")
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype=COLUMNS[name])
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"column {name} of the curriculum is damaged: {error}") from error
