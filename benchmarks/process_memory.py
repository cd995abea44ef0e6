"""Resident memory of processes, from /proc: this one's, and that of a farflung role below a given process."""

import os
import resource
from pathlib import Path


def resident_bytes(pid: int | None = None) -> int:
    """Of this process, or of another; 0 if it is gone."""
    try:
        pages = Path(f"/proc/{pid or os.getpid()}/statm").read_text(encoding="ascii").split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def role_pid(ancestor: int, role: str) -> int | None:
    """The process that runs `role` somewhere below `ancestor`; None until it is there."""
    for pid in descendants(ancestor):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if role.encode() in words:
            return pid
    return None


def descendants(ancestor: int) -> list[int]:
    """Every process below it."""
    found: list[int] = []
    pending = [ancestor]
    while pending:
        pid = pending.pop()
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            children = [int(word) for task in tasks for word in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += children
        pending += children
    return found


def peak_bytes() -> int:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
