"""A fresh interpreter inside, for code that stays and answers messages over the program's channel.

Nothing of the process that started it is left but its walls and limits: not its modules, not its hash seed. What it
prints goes nowhere, so that it may print for ever.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_FLAGS = ("-S", "-s", "-P", "-B")


def run_interpreter(rpc: int, job: dict[str, Any]) -> NoReturn:
    """Become `python -c program RPC`; the environment is what the job says and nothing else. Raises `OSError`."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.set_inheritable(rpc, True)
    python = job["python"]
    words = [python, *_FLAGS, "-c", job["program"], str(rpc)]
    os.execve(python, words, job["environment"])  # noqa: S606 - no shell is wanted
