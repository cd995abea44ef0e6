"""A seccomp filter: which system calls a process and its children may make from now on.

The filter is a classic BPF program (linux/filter.h: 16-bit code, two 8-bit jumps, 32-bit constant) over
`struct seccomp_data` (number at 0, architecture at 4, low words of the arguments at 16, 24, ...).
Source: Documentation/userspace-api/seccomp_filter.rst of the kernel.
"""

import ctypes
import errno
import struct

from farflung.sandbox.isolation.syscall_numbers import ALLOWED, CHANGING, CLONE, CLONE3, IOCTL, OPEN, OPENAT, SOCKETPAIR
from farflung.sandbox.isolation.syscalls import PR_SET_NO_NEW_PRIVS, machine_index, prctl, syscall

AUDIT_ARCH = (0xC000003E, 0xC00000B7)
_SECCOMP = (317, 277)
_SET_MODE_FILTER = 1

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW* flag."""
AF_UNIX = 1
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
"""Push characters into a terminal: the escape of CVE-2017-5226 and its kin."""


O_WRITING = 0o1 | 0o2 | 0o100 | 0o1000
"""O_WRONLY, O_RDWR, O_CREAT, O_TRUNC; the same on every machine type here."""


def filter_bytes(machine: int, *, read_only: bool = False) -> bytes:
    """The program for one machine type (column of `syscall_numbers`).

    Args:
        read_only: refuse whatever changes a file or a folder, or starts a program.
    """
    refuse = _do(_RETURN, _ERRNO | errno.EPERM)
    allow = _do(_RETURN, _ALLOW)
    program = [
        *(_do(_LOAD, _ARCH), _jump(_EQUAL, AUDIT_ARCH[machine], 1, 0), _do(_RETURN, _KILL)),
        _do(_LOAD, _NUMBER),
        # glibc falls back to clone, whose flags a filter can see
        *(_jump(_EQUAL, CLONE3[machine], 0, 1), _do(_RETURN, _ERRNO | errno.ENOSYS)),
        *(_jump(_EQUAL, CLONE[machine], 0, 4), _do(_LOAD, _ARG0), _jump(_ANY_BIT, NEW_NAMESPACES, 0, 1), refuse, allow),
        *(_jump(_EQUAL, SOCKETPAIR[machine], 0, 4), _do(_LOAD, _ARG0), _jump(_EQUAL, AF_UNIX, 1, 0), refuse, allow),
        *(_jump(_EQUAL, IOCTL[machine], 0, 5), _do(_LOAD, _ARG1)),
        *(_jump(_EQUAL, TIOCSTI, 1, 0), _jump(_EQUAL, TIOCLINUX, 0, 1), refuse, allow),
    ]
    if read_only:
        for number, place in ((OPEN[machine], _ARG1), (OPENAT[machine], _ARG2)):
            if number is not None:
                program += [_jump(_EQUAL, number, 0, 4), _do(_LOAD, place), _jump(_ANY_BIT, O_WRITING, 0, 1)]
                program += [refuse, allow]
    for name, numbers in ALLOWED.items():
        number = numbers[machine]
        if number is not None and not (read_only and name in CHANGING):
            program += [_jump(_EQUAL, number, 0, 1), allow]
    return b"".join([*program, refuse])


def load_filter(*, read_only: bool = False) -> None:
    """From now on and for good, for this thread and all its children. Raises `OSError`."""
    machine = machine_index()
    code = filter_bytes(machine, read_only=read_only)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    syscall(_SECCOMP[machine], _SET_MODE_FILTER, 0, ctypes.create_string_buffer(head, len(head)))


def _do(code: int, constant: int) -> bytes:
    return struct.pack("HBBI", code, 0, 0, constant)


def _jump(code: int, constant: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, constant)
