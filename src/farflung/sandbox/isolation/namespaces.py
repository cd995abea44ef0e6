"""Shutting a process in by our own calls: user, mount, process, network and other namespaces; no helper needed.

The order matters: another user first (limits on processes do not hold for root), then a user namespace in which that
user may do the rest, then everything else, and a second fork, since only children enter a new process namespace.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from farflung.sandbox.isolation import syscalls
from farflung.sandbox.isolation.layout import WORK

INNER_ID = 1000
_EVERYTHING = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWCGROUP
)


def become(user: int) -> None:
    """Another user and group, without further groups. Raises `OSError`."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # lost with the change; without it /proc/self is not ours


def enter_user_namespace(inner_user: int, inner_group: int, flags: int = 0) -> None:
    """A user namespace that knows only us. Raises `OSError`."""
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | flags)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inner_user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{inner_group} {group} 1")


def run_as_first(
    inside: Callable[[], NoReturn], failed: Callable[[OSError], None], root: str, disk_bytes: int
) -> NoReturn:
    """Run `inside` as process 1 of new namespaces, shut into `root`; ends when it ends.

    Args:
        failed: told when the shutting in did not work.
        disk_bytes: size of the only writable folder.
    """
    try:
        enter_user_namespace(INNER_ID, INNER_ID)
        syscalls.unshare(_EVERYTHING)
        child = os.fork()
        if child == 0:
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            _shut_in(root, disk_bytes)
            inside()
    except OSError as error:
        failed(error)
        os._exit(1)
    os.closerange(0, 1024)  # the supervisor alone holds the channel
    os.waitpid(child, 0)
    os._exit(0)


def mount_work(root: str, disk_bytes: int, user: int | None = None) -> None:
    """The only writable folder: in memory, limited in size and in number of files. Raises `OSError`.

    Args:
        user: whose it is; None = ours.
    """
    options = f"mode=700,size={disk_bytes},nr_inodes={max(64, disk_bytes // 4096)}"
    if user is not None:
        options += f",uid={user},gid={user}"
    syscalls.mount("tmpfs", f"{root}{WORK}", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)


def _shut_in(root: str, disk_bytes: int) -> None:
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount(root, root, flags=syscalls.MS_BIND | syscalls.MS_REC)
    mount_work(root, disk_bytes)
    syscalls.pivot_into(root)
    os.chdir(WORK)
    syscalls.drop_capabilities()
