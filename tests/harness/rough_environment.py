"""An installed environment that breaks in the ways of other people's code. Its tasks are those of sort-digits.

    fault       what happens: see `FAULTS`
    where       "grade", "task" or "load"
    only_text   the completion that it happens to; "" = all

It is installed as far as processes are concerned that have this folder on their path: `rough_environment-1.dist-info`.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from farflung.envs.base import Grade, Split
from farflung.envs.sort_digits import SortDigits
from farflung.wire.task import Task


def _hang() -> None:
    while True:
        pass


def _hang_in_c() -> None:
    """Nothing of Python runs until it is over."""
    ctypes.PyDLL(None).sleep(600)


def _hang_without_alarms() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(600)


def _raise() -> None:
    raise RuntimeError("a bug in the grader")


def _eat_memory() -> None:
    bytearray(1 << 45)


FAULTS: Mapping[str, Callable[[], object]] = {
    "raise": _raise,
    "hang": _hang,
    "hang_in_c": _hang_in_c,
    "hang_without_alarms": _hang_without_alarms,
    "die": lambda: os._exit(3),
    "memory": _eat_memory,
    "none": lambda: None,
}
REWARDS = {"nan": float("nan"), "inf": float("inf"), "huge": 1e30}


class Rough:
    name = "rough"

    def __init__(self, seed: int, args: Mapping[str, Any]) -> None:
        self._fault = str(args.get("fault", "none"))
        self._where = str(args.get("where", "grade"))
        self._only_text = str(args.get("only_text", ""))
        self._inner = SortDigits(seed, {"num_digits": 2})
        self.num_tasks = self._inner.num_tasks
        self.num_heldout_tasks = self._inner.num_heldout_tasks
        self.target_lengths = self._inner.target_lengths
        self._happen("load")

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        self._happen("task")
        return replace(self._inner.task(split, index, target_length), env=self.name)

    def grade(self, task: Task, completion: str) -> Grade:
        print("what an environment prints is not part of any protocol")
        if self._only_text in ("", completion):
            self._happen("grade")
            if self._fault in REWARDS:
                return Grade(reward=REWARDS[self._fault])
        return self._inner.grade(task, completion)

    def demonstration(self, task: Task, draw: int) -> str | None:
        return self._inner.demonstration(task, draw)

    def alphabet(self) -> str | None:
        return self._inner.alphabet()

    def _happen(self, where: str) -> None:
        if self._where == where and self._fault in FAULTS:
            FAULTS[self._fault]()


class _Maker:
    def __call__(self, seed: int, args: Mapping[str, Any]) -> Rough:
        return Rough(seed, args)


made_by_partial = partial(Rough)
made_by_object = _Maker()
made_by_lambda = lambda seed, args: Rough(seed, args)  # noqa: E731 - that it is one is the point
