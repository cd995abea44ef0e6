"""The pool's end of its keeper: starts the process, asks for sandboxes, one at a time."""

import array
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from farflung.errors import Transient
from farflung.sandbox.code.config import Backend, CodePoolConfig
from farflung.sandbox.code.keeper import ENVIRONMENT, FLAGS
from farflung.sandbox.code.machine import Machine
from farflung.sandbox.code.sandbox import Process, Sandbox
from farflung.sandbox.isolation.cgroup import NAME, Cgroup, remove_orphans

_BOOT = "import sys; sys.path.insert(0, {source!r}); from farflung.sandbox.code.keeper import main; main()"
_SOURCE = str(Path(__file__).parents[3])
_MAX_ANSWER_BYTES = 1 << 16
_CLOSE_S = 5.0
_NUMBERS = itertools.count()
"""Of sandboxes: one count for all pools of a process, since groups and users are named by it."""


class KeeperLink:
    """Thread-safe. Raises `Transient` at start when this kind of sandbox cannot be prepared here."""

    def __init__(self, kind: Backend, config: CodePoolConfig, machine: Machine) -> None:
        self.kind = kind
        self._config, self._machine = config, machine
        self._lock = threading.Lock()
        self._leaving: list[Cgroup] = []
        if machine.cgroups is not None:
            remove_orphans(machine.cgroups)
        self._root = tempfile.mkdtemp(prefix="farflung-root-")
        os.chmod(self._root, 0o755)  # noqa: S103 - another user enters it; it is empty for everybody outside
        settings = {
            "kind": kind,
            "root": self._root,
            "bubblewrap": machine.bubblewrap or "",
            "packages": list(config.packages),
            "mounts": [list(mount) for mount in config.mounts],
            "limits": config.limits.as_dict(),
        }
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(config.start_s)
        with theirs:
            words = [sys.executable, *FLAGS, "-c", _BOOT.format(source=_SOURCE), str(theirs.fileno())]
            self._process = subprocess.Popen(
                [*words, json.dumps(settings)], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=ENVIRONMENT
            )
        try:
            self._check(self._receive()[0])
        except Transient:
            self.close()
            raise

    def start_sandbox(self) -> Sandbox:
        """A new one, on its way to being ready. Raises `Transient`."""
        with self._lock:
            self._sweep()
            number = next(_NUMBERS)
            cgroup = self._make_cgroup(number)
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    process = self._ask(theirs, number, cgroup)
            except Transient:
                ours.close()
                if cgroup is not None:
                    cgroup.remove()
                raise
        return Sandbox(ours, process, cgroup, self._leaving, self._config.limits)

    def is_alive(self) -> bool:
        """Whether it can start sandboxes."""
        return self._process.poll() is None

    def forget(self) -> None:
        """In a forked process: it stays the parent's."""
        self._socket.close()

    def close(self) -> None:
        """Every sandbox that still waits dies with its keeper."""
        self._socket.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with suppress(OSError):
            os.rmdir(self._root)
        until = time.monotonic() + _CLOSE_S
        while self._sweep() and time.monotonic() < until:
            time.sleep(0.01)

    def _sweep(self) -> bool:
        """Remove groups of sandboxes that are gone; whether any is left."""
        for cgroup in list(self._leaving):
            if cgroup.remove():
                self._leaving.remove(cgroup)
        return bool(self._leaving)

    def _ask(self, theirs: socket.socket, number: int, cgroup: Cgroup | None) -> Process:
        request = {
            "user": self._user(number),
            "cgroups": [str(folder) for folder in cgroup.folders()] if cgroup else [],
        }
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
        try:
            self._socket.sendmsg([json.dumps(request).encode()], rights)
        except OSError as error:
            raise Transient(f"the keeper of the sandboxes is gone: {error}") from error
        answer, handles = self._receive()
        self._check(answer)
        (handle,) = handles
        return Process(json.loads(answer)["pid"], handle)

    def _user(self, number: int) -> int | None:
        if not self._machine.is_root or self.kind == "none":
            return None
        offset = os.getpid() * 64 + number  # two pools on one machine rarely meet
        return self._config.first_user + offset % self._config.num_users

    def _make_cgroup(self, number: int) -> Cgroup | None:
        if self._machine.cgroups is None or self.kind == "none":
            return None
        try:
            return Cgroup.make(self._machine.cgroups, f"{NAME}-{os.getpid()}-{number}", self._config.limits)
        except OSError as error:
            raise Transient(f"no control group for a sandbox: {error}") from error

    def _receive(self) -> tuple[bytes, list[int]]:
        handles: array.array[int] = array.array("i")
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_MAX_ANSWER_BYTES, socket.CMSG_SPACE(handles.itemsize))
        except OSError as error:
            raise Transient(f"the keeper of the sandboxes does not answer: {error}") from error
        for _, _, raw in ancillary:
            handles.frombytes(raw)
        return data, list(handles)

    def _check(self, answer: bytes) -> None:
        if not answer:
            raise Transient("the keeper of the sandboxes ended")
        error = json.loads(answer).get("error")
        if error is not None:
            raise Transient(str(error))
