"""Landlock: which files a process and its children may touch; a second wall behind the mounts.

Source: Documentation/userspace-api/landlock.rst of the kernel. A kernel without it is no error here: the caller asks
`landlock_version` and says so.
"""

import ctypes
import os
import struct

from farflung.sandbox.isolation.syscalls import PR_SET_NO_NEW_PRIVS, prctl, syscall

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
READ = _EXECUTE | _READ_FILE | _READ_DIR
READ_WRITE_FILE = _READ_FILE | _WRITE_FILE
_FILE_RIGHTS = (0, (1 << 13) - 1, (1 << 14) - 1, (1 << 15) - 1, (1 << 15) - 1, (1 << 16) - 1)
"""All rights over files that version 0, 1, ... knows: 2 adds REFER, 3 TRUNCATE, 5 IOCTL_DEV."""
_TCP_RIGHTS = 3
_SCOPES = 3


def landlock_version() -> int:
    """0 = the kernel has none."""
    try:
        return syscall(_CREATE, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def restrict_files(readable: list[str], device_files: list[str], writable: list[str]) -> None:
    """Everything else is refused from now on, TCP too (version 4) and signals out of the sandbox (version 6).

    Raises `OSError`; does nothing where the kernel has no Landlock.
    """
    version = landlock_version()
    if version == 0:
        return
    every_right = _FILE_RIGHTS[min(version, len(_FILE_RIGHTS) - 1)]
    rules = struct.pack("QQQ", every_right, _TCP_RIGHTS, _SCOPES)
    num_bytes = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = syscall(_CREATE, ctypes.create_string_buffer(rules, len(rules)), num_bytes, 0)
    try:
        for paths, rights in ((readable, READ), (device_files, READ_WRITE_FILE), (writable, every_right)):
            for path in paths:
                _allow(ruleset, path, rights)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH)
    try:
        rule = struct.pack("=Qi", rights, descriptor)
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.create_string_buffer(rule, len(rule)), 0)
    finally:
        os.close(descriptor)
