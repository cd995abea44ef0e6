"""CPU time of a process and everything below it, from /proc."""

import os
from pathlib import Path

from benchmarks.process_memory import descendants

_UTIME, _CSTIME = 11, 14
"""Of the fields after the command's closing bracket: user, system, and both of the children that have ended."""


def tree_cpu_s(pid: int) -> float:
    """CPU-seconds so far, of ended children too; one that is gone counts with its parent."""
    return sum(_ticks(one) for one in [pid, *descendants(pid)]) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[_UTIME : _CSTIME + 1]))
