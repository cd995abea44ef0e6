"""Where a process inside becomes the supervisor, hardened for good.

Started either by a fork of the keeper (own namespaces) or as the command of bubblewrap:

    python -S -s -P -c "...; main()" CONTROL_FD LIMITS_AS_JSON
"""

import json
import os
import sys
from typing import NoReturn

from farflung.sandbox.code.inside.program import run_program
from farflung.sandbox.code.inside.supervisor import supervise
from farflung.sandbox.isolation.landlock import restrict_files
from farflung.sandbox.isolation.limits import Limits
from farflung.sandbox.isolation.seccomp import load_filter
from farflung.sandbox.isolation.staging import DEVICES, WORK
from farflung.sandbox.isolation.syscalls import PR_SET_DUMPABLE, prctl

BOOT = "import sys; sys.path.insert(0, {source!r}); from farflung.sandbox.code.inside.enter import main; main()"


def main() -> NoReturn:
    """As the command of bubblewrap."""
    control, text = int(sys.argv[1]), sys.argv[2]
    sys.argv = [""]
    sys.path.pop(0)
    enter(control, Limits(**json.loads(text)))


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
