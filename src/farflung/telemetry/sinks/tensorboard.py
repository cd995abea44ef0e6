"""TensorBoard: event files in `<run>/tensorboard`, by the writer of the `tensorboard` package (no TensorFlow).

tensorboard --logdir runs
"""

from collections.abc import Sequence

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from farflung.telemetry.sinks.base import Target
from farflung.telemetry.sinks.points import Point


class TensorBoardSink:
    """Scalars at policy versions, with the time at which the run told them."""

    def __init__(self, target: Target) -> None:
        self._writer = EventFileWriter(str(target.folder / "tensorboard"))

    def write(self, points: Sequence[Point]) -> None:
        """Durable as far as a file is when this returns."""
        for point in points:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.figures.items()]
            self._writer.add_event(Event(wall_time=point.time_s, step=point.step, summary=Summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
