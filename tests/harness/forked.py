"""`farflung` commands as processes that start in no time: children of a server that has torch imported already.

They are processes like any other: own memory, own id, and SIGKILL ends them in the middle of what they do.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from farflung.cli.main import main

PRELOADED = [
    "farflung.cli.main",
    "farflung.cli.config",
    "farflung.coordinator.service",
    "farflung.trainer.service",
    "farflung.validator.service",
    "farflung.worker.service",
]


class ForkedProcess:
    """One command, with what it prints in one file. The same to look at as `processes.Process`."""

    def __init__(self, words: Sequence[str], log_path: Path, environment: Mapping[str, str]) -> None:
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process: Any = context.Process(target=_run, args=(list(words), str(log_path), dict(environment)))
        self._process.start()

    @property
    def pid(self) -> int:
        pid: int = self._process.pid
        return pid

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.join()


def _run(words: list[str], log_path: str, environment: dict[str, str]) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.update(environment)
    sys.exit(main(words))
