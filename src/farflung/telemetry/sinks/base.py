"""What a sink is, and which there are."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from farflung.errors import UserError
from farflung.telemetry.sinks.points import Point

SinkName = Literal["tensorboard", "wandb", "trackio"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a tracker is to call the run, and where local files go."""

    project: str
    run_name: str
    run_id: str
    """Stays the same when the run goes on, so that the tracker goes on with the same curves."""
    folder: Path
    """The run's own."""
    is_offline: bool = False
    """Write local files only, where the tracker can."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Shown beside the run."""


class Sink(Protocol):
    """Takes points in order. May raise anything: the caller counts it and opens the sink anew."""

    def write(self, points: Sequence[Point]) -> None:
        """When this returns, the points are the tracker's own to keep: on its disk, or in its own queue."""
        ...

    def close(self) -> None: ...


SINKS: dict[SinkName, str] = {"tensorboard": "TensorBoardSink", "wandb": "WandbSink", "trackio": "TrackioSink"}
"""Name, which is also the package's and the extra's -> class in the module of that name."""


def sink_factory(name: SinkName) -> Callable[[Target], Sink]:
    """The class of a sink; calling it opens the tracker.

    Raises:
        UserError: its package is not installed.
    """
    if importlib.util.find_spec(name) is None:
        raise UserError(f"{name} is not installed: pip install 'farflung[{name}]'")
    module = importlib.import_module(f"farflung.telemetry.sinks.{name}")
    factory: Callable[[Target], Sink] = getattr(module, SINKS[name])
    return factory
