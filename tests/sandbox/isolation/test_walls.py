"""Single walls, each in a process of its own: what one of them stops when the others are not there."""

import subprocess
import sys

import pytest

from farflung.sandbox.isolation.landlock import landlock_version

LANDLOCK = """
from farflung.sandbox.isolation.landlock import restrict_files
import os, tempfile
inside = tempfile.mkdtemp()
outside = tempfile.mkdtemp()
restrict_files(["/usr"], ["/dev/null"], [inside])
def can(action):
    try:
        action()
    except PermissionError:
        return False
    return True
print(
    can(lambda: open(f"{inside}/x", "w")), can(lambda: open(f"{outside}/x", "w")), can(lambda: os.listdir("/usr")),
    can(lambda: open("/usr/x", "w")), can(lambda: open("/etc/hostname")), can(lambda: open("/dev/null", "w")),
    can(lambda: os.symlink("/etc/hostname", f"{inside}/link") or open(f"{inside}/link")),
)
"""
SECCOMP = """
import os, socket
from farflung.sandbox.isolation.seccomp import load_filter
load_filter()
def can(action):
    try:
        action()
    except PermissionError:
        return False
    return True
print(
    can(socket.socket), can(socket.socketpair), can(os.getpid),
    can(lambda: os.setuid(os.getuid())), can(lambda: os.memfd_create("x")),
    os.waitpid(os.fork() or os._exit(3), 0)[1] >> 8,
)
"""


def output_of(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
def test_landlock_alone_keeps_files_apart() -> None:
    assert output_of(LANDLOCK) == "True False True False False True False"


def test_seccomp_alone_refuses_sockets_users_and_hidden_memory() -> None:
    assert output_of(SECCOMP) == "False True True False False 3"
