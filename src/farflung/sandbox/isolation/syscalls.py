"""The few system calls that Python has no function for, through ctypes.

Knows nothing about sandboxes. Numbers above 423 are the same on every machine type.
"""

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_MACHINES = ("x86_64", "aarch64")
_PIVOT_ROOT = (155, 41)
_CAPSET = (126, 91)
_CAP_VERSION_3 = 0x20080522
_MAX_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def machine_index() -> int:
    """Column of this machine type in a table of numbers. Raises `OSError` for a type without one."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(0, f"machine type {machine} has no table of system calls here; known are {', '.join(_MACHINES)}")
    return _MACHINES.index(machine)


def syscall(number: int, *arguments: object) -> int:
    """Any system call. Raises `OSError`."""
    return _checked(_libc.syscall(number, *arguments), f"system call {number}")


def prctl(option: int, value: int) -> None:
    """Raises `OSError`."""
    _checked(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def unshare(flags: int) -> None:
    """Leave namespaces. Raises `OSError`."""
    _checked(_libc.unshare(ctypes.c_int(flags)), f"unshare {flags:#x}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Raises `OSError` that names the target."""
    arguments = [word.encode() or None for word in (source, target, kind)]
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"mount on {target}")


def pivot_into(root: str) -> None:
    """Make `root`, a mount point, the root folder; the old root is gone afterwards. Raises `OSError`."""
    os.chdir(root)
    syscall(_PIVOT_ROOT[machine_index()], b".", b".")  # old and new root stacked: pivot_root(2), notes
    _checked(_libc.umount2(b".", MNT_DETACH), "detach the old root")
    os.chdir("/")


def drop_capabilities() -> None:
    """For good: bounding set and own sets. Raises `OSError`."""
    for capability in range(_MAX_CAPABILITY):
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # the kernel knows no more
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION_3, 0)
    syscall(_CAPSET[machine_index()], header, (ctypes.c_uint32 * 6)())


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
