"""trackio: a local SQLite file, shown by `trackio show --project PROJECT`."""

from collections.abc import Sequence

import trackio

from farflung.telemetry.sinks.base import Target
from farflung.telemetry.sinks.points import Point


class TrackioSink:
    """One run, gone on with by its name."""

    def __init__(self, target: Target) -> None:
        self._run = trackio.init(
            project=target.project,
            name=target.run_name,
            resume="allow",
            config=dict(target.settings),
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log(point.figures, step=point.step)

    def close(self) -> None:
        self._run.finish()
