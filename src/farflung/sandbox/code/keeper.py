"""The process that starts sandboxes: small, single-threaded, holding no secret, so that a fork of it is cheap and safe.

    python -S -s -P -c "...; main()" REQUESTS_FD SETTINGS_AS_JSON

Each request comes with one end of a private channel. The answer is a process with its descriptor: whoever holds that
can kill this sandbox, and no other by mistake. The keeper ends when its requester does.
"""

import array
import gc
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from farflung.sandbox.code.inside.enter import BOOT, enter, enter_open, words_of
from farflung.sandbox.code.inside.frames import frame, write_all
from farflung.sandbox.code.inside.supervisor import BROKEN, NO_NONCE
from farflung.sandbox.isolation import namespaces, syscalls
from farflung.sandbox.isolation.bubblewrap import bubblewrap_words
from farflung.sandbox.isolation.cgroup import OVERHEAD_PROCESSES, join
from farflung.sandbox.isolation.layout import SOURCE
from farflung.sandbox.isolation.limits import Limits
from farflung.sandbox.isolation.staging import stage

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "PYTHONHASHSEED": "0"}  # noqa: S108 - inside
"""All that a program sees; hashes do not vary, so that a verdict can be replayed."""
FLAGS = ["-S", "-s", "-P", "-B"]
_WARM = (
    "bisect collections copy dataclasses datetime decimal enum fractions functools heapq io itertools json math "
    "operator random re statistics string textwrap typing unittest "
    "farflung.sandbox.code.inside.answers farflung.sandbox.code.inside.testing"
)
"""Imported once here, so that no program waits for them."""
_MAX_REQUEST_BYTES = 1 << 16


def main() -> NoReturn:
    descriptor, text = int(sys.argv[1]), sys.argv[2]
    sys.argv = [""]
    sys.path.pop(0)
    requests = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the requester
    keeper = Keeper(**json.loads(text))
    try:
        keeper.prepare()
    except OSError as error:
        requests.send(json.dumps({"error": str(error)}).encode())
        os._exit(1)
    requests.send(b"{}")
    keeper.serve(requests)
    os._exit(0)


class Keeper:
    """Starts one kind of sandbox.

    Args:
        kind: `bubblewrap`, `namespaces` or `none`.
        root: an empty folder, to be the root of every sandbox.
        bubblewrap: path of its program.
        packages: further folders that programs may import from.
        mounts: further folders as (path outside, path inside).
        limits: for every sandbox.
    """

    def __init__(
        self,
        kind: str,
        root: str,
        bubblewrap: str,
        packages: list[str],
        mounts: list[list[str]],
        limits: dict[str, Any],
    ) -> None:
        self._kind, self._root, self._bubblewrap = kind, root, bubblewrap
        self._packages, self._mounts = packages, mounts
        self._limits = Limits(**limits)
        self._python = os.path.realpath(sys.executable)  # now: another user may not be allowed to follow the links

    def prepare(self) -> None:
        """Once. Raises `OSError`."""
        if self._kind != "bubblewrap":  # which starts every interpreter anew
            for name in _WARM.split():
                __import__(name)
            gc.freeze()  # a collection in a fork would copy every page that it looks at
        gc.disable()
        if self._kind == "none":
            return
        if os.geteuid() == 0:
            syscalls.unshare(syscalls.CLONE_NEWNS)
        else:
            namespaces.enter_user_namespace(os.geteuid(), os.getegid(), syscalls.CLONE_NEWNS)
        stage(self._root, self._packages, self._mounts)

    def serve(self, requests: socket.socket) -> None:
        """Until the requester hangs up."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
        while True:
            data, ancillary, _, _ = requests.recvmsg(_MAX_REQUEST_BYTES, socket.CMSG_SPACE(array.array("i").itemsize))
            if not data:
                return
            ((_, _, raw),) = ancillary
            (control,) = array.array("i", raw)
            request = json.loads(data)
            child = os.fork()
            if child == 0:
                requests.close()
                self._start(control, request["user"], request["cgroups"])
            os.close(control)
            self._answer(requests, child)

    def _answer(self, requests: socket.socket, child: int) -> None:
        try:
            handle = os.pidfd_open(child)
        except ProcessLookupError:
            requests.send(b'{"error": "the sandbox ended at once"}')
            return
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))]
        requests.sendmsg([json.dumps({"pid": child}).encode()], rights)
        os.close(handle)

    def _start(self, control: int, user: int | None, cgroups: Sequence[str]) -> NoReturn:
        """In the fork. The order: groups as root, then the user, then the walls."""

        def failed(error: OSError) -> None:
            write_all(control, frame(NO_NONCE + BROKEN + str(error).encode()))

        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            join(list(cgroups))
            if self._kind == "bubblewrap":
                syscalls.unshare(syscalls.CLONE_NEWNS)
                namespaces.mount_work(self._root, self._limits.disk_bytes, user)
            if user is not None:
                namespaces.become(user)
                most = self._limits.max_processes + OVERHEAD_PROCESSES
                _limit_processes(most)
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            self._wall_in(control, failed)
        except OSError as error:
            failed(error)
        os._exit(1)

    def _wall_in(self, control: int, failed: Any) -> NoReturn:
        if self._kind == "namespaces":
            namespaces.run_as_first(lambda: enter(control, self._limits), failed, self._root, self._limits.disk_bytes)
        if self._kind == "none":
            os.chdir("/tmp")  # noqa: S108 - the program's working folder
            enter_open(control, self._limits)
        os.set_inheritable(control, True)
        python = [self._python, *FLAGS, "-c", BOOT.format(source=SOURCE)]
        command = [*python, str(control), words_of(self._limits)]
        words = bubblewrap_words(self._bubblewrap, self._root, command)
        os.execve(self._bubblewrap, words, ENVIRONMENT)  # noqa: S606 - no shell is wanted


def _limit_processes(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
