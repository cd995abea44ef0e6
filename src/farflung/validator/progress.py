"""How far a judging process has come, in memory that it shares with its validator, so that it can be read after death.

ticks    uint64    rises with every step
step     int64     position of the rollout in grading, or one of the steps below 0
"""

import mmap
import struct

READING, BUILDING_TASKS, FINISHING = -1, -2, -3
STEP_NAMES = {READING: "reading the file", BUILDING_TASKS: "building the tasks", FINISHING: "finishing the verdict"}

_LAYOUT = struct.Struct("=Qq")
SIZE_BYTES = mmap.PAGESIZE


class Progress:
    """One page of a file that both sides map. One writes, the other reads."""

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, SIZE_BYTES)
        self._ticks = 0

    def begin(self, step: int) -> None:
        self._ticks += 1
        _LAYOUT.pack_into(self._page, 0, self._ticks, step)

    def read(self) -> tuple[int, int]:
        """(ticks, step) as last written."""
        ticks, step = _LAYOUT.unpack_from(self._page, 0)
        return ticks, step

    def close(self) -> None:
        self._page.close()
