"""Checkpoints whose bytes go to disk while the trainer makes the next version.

In a pool a version is durable before it is announced, since others have seen it. Here nobody outlives the trainer: what
a kill loses is made again from the checkpoint before, with the same slots. The first is waited for, so that there is
one before.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from farflung.trainer.checkpoint import Checkpoint, Checkpoints
from farflung.trainer.marks import Marks, pass_by


class BackgroundCheckpoints(Checkpoints):
    """One save at a time: the next waits for the one before, and raises what that raised."""

    def __init__(self, folder: Path, keep: int, marks: Marks = pass_by) -> None:
        super().__init__(folder, keep, marks)
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._under_way: Future[None] | None = None

    def _put(self, version: int, files: Mapping[str, bytes], *, is_best: bool) -> None:
        self.settle()
        self._under_way = self._writer.submit(super()._put, version, files, is_best=is_best)
        if version == 0:
            self.settle()

    def settle(self) -> None:
        """Wait until everything is on disk.

        Raises:
            OurFault: the disk refused.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def load_newest(self) -> Checkpoint | None:
        self.settle()
        return super().load_newest()

    def load_best(self) -> Checkpoint | None:
        self.settle()
        return super().load_best()

    def load(self, version: int) -> Checkpoint | None:
        self.settle()
        return super().load(version)
