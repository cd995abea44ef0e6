"""Sampler processes that start in no time: children of a server that has torch imported already."""

import multiprocessing
import os
import subprocess
from multiprocessing.connection import Connection
from typing import Any

from farflung.local import sampler


class ForkedSampler:
    """As much of `subprocess.Popen` as `local.process` asks for."""

    def __init__(self, process: Any) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        pid: int = self._process.pid
        return pid

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code: int | None = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("sampler", timeout or 0.0)
        return code


def start_forked(fds: tuple[int, int], num_threads: int) -> ForkedSampler:
    """In place of `local.process.start_process`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["farflung.local.sampler", "torch._inductor.config"])
    ends = [Connection(os.dup(fd)) for fd in fds]
    process = context.Process(target=_run, args=tuple(ends))
    process.start()
    for end in ends:
        end.close()
    return ForkedSampler(process)


def _run(link: Connection, memory: Connection) -> None:
    sampler.main(os.dup(link.fileno()), os.dup(memory.fileno()))
