"""The child that runs what the model wrote: waits for its task, limits itself for good, then obeys the task's mode."""

from __future__ import annotations

import gc
import os
import resource

from farflung.sandbox.code.inside.frames import read_frame
from farflung.sandbox.code.inside.interpreter import run_interpreter
from farflung.sandbox.code.inside.job import unpack
from farflung.sandbox.code.inside.script import finish, run_script
from farflung.sandbox.code.inside.supervisor import OVERHEAD_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from farflung.sandbox.isolation.limits import Limits


def run_program(rpc: int, limits: Limits) -> NoReturn:
    """Never returns; whatever happens in here is the program's own end."""
    limit(limits)
    try:
        job = unpack(read_frame(rpc, limits.message_bytes + OVERHEAD_BYTES))
    except EOFError:
        os._exit(0)
    _limit_cpu(float(job["cpu_s"]))
    match job["mode"]:
        case "script":
            os.close(rpc)
            _collect_garbage()
            run_script(job)
        case "answers":
            from farflung.sandbox.code.inside.answers import Answers

            _collect_garbage()
            try:
                Answers(rpc, limits.message_bytes + OVERHEAD_BYTES).serve(job)
            except (EOFError, OSError):
                finish(0)  # the other end has heard enough
            finish(0)
        case "tests":
            from farflung.sandbox.code.inside.testing import run_tests

            _collect_garbage()
            run_tests(rpc, job, limits)
        case "interpreter":
            run_interpreter(rpc, job)
        case mode:
            raise AssertionError(f"unknown mode {mode}")


def _collect_garbage() -> None:
    """From now on, of what the program makes; what was there before is shared with other processes and stays."""
    gc.freeze()
    gc.enable()


def limit(limits: Limits) -> None:
    """Everything but CPU time, which depends on the task."""
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.max_open_files),
        (resource.RLIMIT_NPROC, limits.max_processes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 64),
    ):
        _lower(kind, most)


def _limit_cpu(cpu_s: float) -> None:
    whole_s = max(1, round(cpu_s + 0.499))
    _lower(resource.RLIMIT_CPU, whole_s, whole_s + 1)


def _lower(kind: int, soft: int, hard: int | None = None) -> None:
    _, most = resource.getrlimit(kind)
    hard = soft if hard is None else hard
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))
