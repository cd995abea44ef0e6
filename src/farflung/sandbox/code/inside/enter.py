"""Where a process inside becomes the supervisor, hardened for good.

Started either by a fork of the keeper (own namespaces) or as the command of bubblewrap:

    python -S -s -P -c "...; main()" CONTROL_FD LIMITS

As a command it starts for every program, and imports are nearly all that a start costs. So the modules in here import
what each program needs and no more: no `typing`, and no `json`, `signal` or `dataclasses`, which import `enum` or `re`.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from farflung.sandbox.code.inside.program import run_program
from farflung.sandbox.code.inside.supervisor import supervise
from farflung.sandbox.isolation.landlock import restrict_files
from farflung.sandbox.isolation.layout import DEVICES, WORK
from farflung.sandbox.isolation.seccomp import load_filter
from farflung.sandbox.isolation.syscalls import PR_SET_DUMPABLE, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from farflung.sandbox.isolation.limits import Limits

BOOT = (
    "import gc; gc.disable(); import sys; sys.path.insert(0, {source!r}); "
    "from farflung.sandbox.code.inside.enter import main; main()"
)


def main() -> NoReturn:
    """As the command of bubblewrap."""
    control, words = int(sys.argv[1]), sys.argv[2]
    sys.argv = [""]
    sys.path.pop(0)
    enter(control, _limits_in(words))


def words_of(limits: Limits) -> str:
    """Limits as a word of that command."""
    return " ".join(f"{name}={value}" for name, value in limits.as_dict().items())


def _limits_in(words: str) -> Limits:
    """The same numbers by the same names, checked where they come from."""
    pairs = (word.split("=") for word in words.split())
    numbers: Any = SimpleNamespace(**{name: float(text) if "." in text else int(text) for name, text in pairs})
    limits: Limits = numbers
    return limits


def enter(control: int, limits: Limits) -> NoReturn:
    """In the new root already."""
    supervise(control, limits, harden, run_program)


def harden() -> None:
    """Files, system calls, and no look into this process for its children. Raises `OSError`."""
    restrict_files(["/"], [f"/dev/{name}" for name in DEVICES if os.path.exists(f"/dev/{name}")], [WORK])
    prctl(PR_SET_DUMPABLE, 0)
    load_filter()


def enter_open(control: int, limits: Limits) -> NoReturn:
    """Without any wall: for a user's own code."""
    supervise(control, limits, lambda: None, run_program)
