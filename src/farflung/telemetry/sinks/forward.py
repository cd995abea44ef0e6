"""The loop that hands what a run writes to one sink, in a process of its own.

    read new rows -> points -> sink.write -> remember the place

A sink that fails is opened anew after a pause that doubles; the place is not moved, so nothing is lost while a tracker
is away. Memory is bounded by `MAX_BYTES_AT_ONCE`: the run's own files are the queue.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from farflung.telemetry.metrics import MetricsTail
from farflung.telemetry.sinks.base import Sink
from farflung.telemetry.sinks.points import Point, points
from farflung.telemetry.sinks.position import Position, write_position

logger = logging.getLogger(__name__)

MAX_BYTES_AT_ONCE = 1 << 20
POLL_S = 1.0
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
MAX_FAILURE_CHARS = 300


class Forwarder:
    """One run to one sink.

    Args:
        files: of rows, each by a name that stays.
        position: where to go on; changed as it goes.
        open_sink: called at the first point, and again after a failure.
    """

    def __init__(
        self, files: Sequence[Path], position: Position, position_path: Path, open_sink: Callable[[], Sink]
    ) -> None:
        self._files = files
        self._position = position
        self._position_path = position_path
        self._open_sink = open_sink
        self._sink: Sink | None = None

    def run(self, stop: threading.Event, *, follow: bool) -> bool:
        """Forward what is there, and with `follow` what comes until `stop` is set; then a last time.

        Returns whether everything that is there was delivered.
        """
        pause_s = FIRST_PAUSE_S
        while follow and not stop.is_set():
            if self.deliver():
                pause_s = FIRST_PAUSE_S
                stop.wait(POLL_S)
            else:
                stop.wait(pause_s)
                pause_s = min(MAX_PAUSE_S, 2 * pause_s)
        is_whole = self.deliver()
        return self._close() and is_whole

    def deliver(self) -> bool:
        """Everything that is new; False when the sink did not take it."""
        return all(self._deliver_file(path) for path in self._files)

    def _deliver_file(self, path: Path) -> bool:
        tail = MetricsTail(
            path, offset_bytes=self._position.offsets_bytes.get(path.name, 0), max_bytes=MAX_BYTES_AT_ONCE
        )
        while True:
            before_bytes = tail.offset_bytes
            new = points(tail.poll())
            if tail.offset_bytes == before_bytes:
                return True
            if new and not self._hand_over(new):
                return False
            self._position.offsets_bytes[path.name] = tail.offset_bytes
            self._position.num_points += len(new)
            self._remember()

    def _hand_over(self, new: Sequence[Point]) -> bool:
        try:
            if self._sink is None:
                self._sink = self._open_sink()
            self._sink.write(new)
        except Exception as error:  # noqa: BLE001 - the boundary to trackers, which raise whatever they like
            self._count(error)
            self._close()
            return False
        return True

    def _close(self) -> bool:
        sink, self._sink = self._sink, None
        try:
            if sink is not None:
                sink.close()
        except Exception as error:  # noqa: BLE001 - the same boundary
            self._count(error)
            return False
        return True

    def _count(self, error: Exception) -> None:
        """Told once in the log at its first time, counted always."""
        self._position.num_failures += 1
        failure = f"{type(error).__name__}: {error}"[:MAX_FAILURE_CHARS]
        if failure != self._position.last_failure:
            logger.warning("the tracker does not take figures, they are kept and sent again: %s", failure)
        self._position.last_failure = failure
        self._remember()

    def _remember(self) -> None:
        try:
            write_position(self._position_path, self._position)
        except OSError as error:
            logger.warning("the place cannot be kept, figures may be sent twice: %s", error)
