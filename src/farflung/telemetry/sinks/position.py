"""How far a sink has come with a run: a small file in the run's folder, replaced whole."""

import json
import os
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(kw_only=True, slots=True)
class Position:
    """Survives every restart; after a crash a few rows are sent twice, none is left out."""

    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """By which the tracker knows the run again."""
    offsets_bytes: dict[str, int] = field(default_factory=dict)
    """File name -> bytes that were delivered."""
    num_points: int = 0
    """Delivered."""
    num_failures: int = 0
    """Attempts that the tracker did not take."""
    last_failure: str = ""


def read_position(path: Path) -> Position:
    """Where the sink was; a new beginning where the file is absent or no position."""
    try:
        stored = json.loads(path.read_bytes())
        return Position(
            run_id=str(stored["run_id"]),
            offsets_bytes={str(name): int(offset) for name, offset in stored["offsets_bytes"].items()},
            num_points=int(stored["num_points"]),
            num_failures=int(stored["num_failures"]),
            last_failure=str(stored["last_failure"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Position()


def write_position(path: Path, position: Position) -> None:
    """Raises `OSError` for want of disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(asdict(position)), encoding="utf-8")
    os.replace(unfinished, path)
