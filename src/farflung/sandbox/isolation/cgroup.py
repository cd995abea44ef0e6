"""Control groups: limits on all processes of a sandbox together. Version 2 and version 1, where they may be written.

Paths in, paths out; who is put into a group is the caller's affair. Sources: admin-guide/cgroup-v2.rst and
cgroup-v1/{memory,pids}.rst of the kernel.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from farflung.sandbox.isolation.limits import MIB, Limits

ROOT = Path("/sys/fs/cgroup")
OVERHEAD_BYTES = 32 * MIB
"""For the supervisor inside; the program's own limit is the smaller one."""
OVERHEAD_PROCESSES = 4
NAME = "farflung"
"""Groups are called NAME-PID-COUNT."""
_V2_CONTROLLERS = "+memory +pids"


@dataclass(frozen=True, slots=True)
class CgroupParents:
    """Where groups may be made: one folder (version 2) or one for each controller (version 1)."""

    version: int
    memory: Path
    pids: Path

    def folders(self) -> list[Path]:
        return [self.memory] if self.version == 2 else [self.memory, self.pids]


def find_parents(root: Path = ROOT, own: str | None = None) -> CgroupParents | None:
    """The first place where a group with both limits can be made; None if there is none.

    Args:
        own: text of `/proc/self/cgroup`; read if not given.
    """
    own = _read(Path("/proc/self/cgroup")) if own is None else own
    for line in own.splitlines():
        number, _, path = line.split(":", 2)
        if number == "0" and (parents := _v2(root / path.lstrip("/")) or _v2(root)):
            return parents
    memory, pids = root / "memory", root / "pids"
    parents = CgroupParents(1, memory, pids)
    return parents if _can_make(parents) else None


def _v2(folder: Path) -> CgroupParents | None:
    if "memory" not in (known := _read(folder / "cgroup.controllers").split()) or "pids" not in known:
        return None
    with suppress(OSError):  # refused where processes live in the folder itself; perhaps they are on already
        (folder / "cgroup.subtree_control").write_text(_V2_CONTROLLERS)
    parents = CgroupParents(2, folder, folder)
    return parents if _can_make(parents) else None


def _can_make(parents: CgroupParents) -> bool:
    """Tried, because permissions, read-only mounts and delegation cannot be told from outside."""
    try:
        group = Cgroup.make(parents, f"{NAME}-try-{os.getpid()}", Limits())
    except OSError:
        return False
    group.remove()
    return True


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One group with its limits."""

    version: int
    memory: Path
    pids: Path

    @classmethod
    def make(cls, parents: CgroupParents, name: str, limits: Limits) -> "Cgroup":
        """Raises `OSError`, and leaves nothing behind then."""
        group = cls(parents.version, parents.memory / name, parents.pids / name)
        try:
            for folder in group.folders():
                folder.mkdir(exist_ok=True)
            group._limit(limits)
        except OSError:
            group.remove()
            raise
        return group

    def folders(self) -> list[Path]:
        return [self.memory] if self.version == 2 else [self.memory, self.pids]

    def _limit(self, limits: Limits) -> None:
        num_bytes = str(limits.memory_bytes + limits.disk_bytes + OVERHEAD_BYTES)
        _set(self.pids / "pids.max", str(limits.max_processes + OVERHEAD_PROCESSES))
        if self.version == 2:
            _set(self.memory / "memory.max", num_bytes)
            swap = self.memory / "memory.swap.max"
            if swap.exists():
                _set(swap, "0")
            return
        _set(self.memory / "memory.limit_in_bytes", num_bytes)
        with_swap = self.memory / "memory.memsw.limit_in_bytes"
        if with_swap.exists():
            _set(with_swap, num_bytes)

    def num_killed(self) -> int:
        """Processes that the kernel killed for want of memory."""
        text = _read(self.memory / ("memory.events" if self.version == 2 else "memory.oom_control"))
        words = text.split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def remove(self) -> bool:
        """Whether it is gone; a group whose last process is still on its way out is not, and wants another try."""
        for folder in self.folders():
            with suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self.folders())


def remove_orphans(parents: CgroupParents) -> None:
    """Groups that a killed pool left behind."""
    for folder in parents.folders():
        for path in folder.glob(f"{NAME}-*-*"):
            if not Path(f"/proc/{path.name.split('-')[1]}").exists():
                with suppress(OSError):
                    path.rmdir()


def join(folders: list[str]) -> None:
    """Put this process into groups. Raises `OSError`."""
    for folder in folders:
        _set(Path(folder) / "cgroup.procs", "0")


def _set(path: Path, text: str) -> None:
    with path.open("r+") as file:  # never creates: a missing file means a missing controller
        file.write(text)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
