"""One sandbox from outside: give it a task, talk to it, end it. Used once.

The supervisor inside holds the channel; every message after the first must carry the nonce that only it was told.
"""

import hmac
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from farflung.errors import Transient
from farflung.sandbox.code.inside import supervisor
from farflung.sandbox.code.inside.frames import FrameBuffer, FrameTooLong, frame
from farflung.sandbox.code.inside.job import pack
from farflung.sandbox.isolation.cgroup import Cgroup
from farflung.sandbox.isolation.limits import Limits

_PIECE = 1 << 18
_KILL_S = 10.0


class Cause(StrEnum):
    """Why a program is over."""

    EXITED = "exited"
    OUTPUT_LIMIT = "output_limit"
    MESSAGE_LIMIT = "message_limit"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a program ended."""

    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    stdout: bytes = b""
    stderr: bytes = b""
    """Its end."""


@dataclass(frozen=True, slots=True)
class Process:
    """The outermost process of a sandbox; leads a process group of its own."""

    pid: int
    handle: int
    """Its descriptor, which never means another process."""

    def kill(self) -> None:
        """With its group: a helper that is killed while it builds the walls would leave its child behind."""
        if not _has_ended(self.handle, 0.0):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        _has_ended(self.handle, _KILL_S)
        os.close(self.handle)

    def forget(self) -> None:
        """Without ending it."""
        os.close(self.handle)


def _has_ended(handle: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


class _End(msgspec.Struct):
    exit_code: int | None
    signal: int | None
    cpu_s: float
    cause: Cause


class Sandbox:
    """Not thread-safe; belongs to who took it.

    Args:
        control: our end of the private channel.
        process: its outermost process.
        leaving: where its group is put when it is over, for somebody to remove.
    """

    def __init__(
        self, control: socket.socket, process: Process, cgroup: Cgroup | None, leaving: list[Cgroup], limits: Limits
    ) -> None:
        self._control, self._process, self._limits = control, process, limits
        self._cgroup, self._leaving = cgroup, leaving
        self._buffer = FrameBuffer(max(limits.message_bytes, limits.output_bytes) + supervisor.OVERHEAD_BYTES)
        self._frames: list[bytes] = []
        self._nonce = supervisor.NO_NONCE
        self._cpu_s = 0.0
        self._is_over = False
        self._stdout = self._stderr = b""
        self.ending: Ending | None = None
        """Known once `receive` has returned None."""

    def wait_ready(self, within_s: float) -> None:
        """Until its interpreter waits inside. Raises `Transient` when that does not come about."""
        kind, payload = self._next(time.monotonic() + within_s)
        if kind != supervisor.READY:
            raise Transient(f"a sandbox did not start: {payload.decode(errors='replace')[:300]}")

    def give(self, job: Mapping[str, object], cpu_s: float) -> None:
        """The one task of its life, with the CPU time of each of its processes. Raises `Transient`."""
        self._cpu_s = cpu_s
        self._nonce = secrets.token_bytes(supervisor.NONCE_BYTES)
        self._send(frame(self._nonce) + frame(pack({**job, "cpu_s": str(cpu_s)})))

    def send(self, payload: bytes) -> None:
        """A message to the program. Raises `Transient`."""
        self._send(frame(payload))

    def receive(self, deadline: float) -> bytes | None:
        """The program's next message; None once it has ended, by itself or at the deadline (monotonic clock).

        Raises `Transient` when the sandbox broke down.
        """
        while self.ending is None:
            try:
                kind, payload = self._next(deadline)
            except TimeoutError:
                self.ending = Ending(cause=Cause.TIME_LIMIT)
                self.kill()
                break
            except Transient:
                if self._num_killed() == 0:
                    raise
                self.ending = Ending(cause=Cause.MEMORY_LIMIT)  # the supervisor was killed for the program's memory
                break
            if kind == supervisor.MESSAGE:
                return payload
            self._note(kind, payload)
        return None

    def kill(self) -> None:
        """Its outermost process, and with it everything inside. May be called twice."""
        if self._is_over:
            return
        self._is_over = True
        self._process.kill()
        self._control.close()
        if self._cgroup is not None:
            self._leaving.append(self._cgroup)

    def forget(self) -> None:
        """In a forked process: it stays the parent's."""
        self._is_over = True
        self._process.forget()
        self._control.close()

    def _note(self, kind: bytes, payload: bytes) -> None:
        if kind == supervisor.STDOUT:
            self._stdout = payload
        elif kind == supervisor.STDERR:
            self._stderr = payload
        elif kind == supervisor.END:
            end = msgspec.json.decode(payload, type=_End)
            self.ending = Ending(
                cause=self._cause(end),
                exit_code=end.exit_code,
                signal=end.signal,
                cpu_s=end.cpu_s,
                stdout=self._stdout,
                stderr=self._stderr,
            )
        else:
            raise Transient(f"a sandbox broke down: {payload.decode(errors='replace')[:300]}")

    def _cause(self, end: _End) -> Cause:
        """A kill by the kernel looks alike for memory and time; the group's count tells."""
        if end.cause != Cause.EXITED or end.signal is None:
            return end.cause
        if self._num_killed() > 0:
            return Cause.MEMORY_LIMIT
        is_late = end.signal == signal.SIGXCPU or (end.signal == signal.SIGKILL and end.cpu_s >= self._cpu_s)
        return Cause.TIME_LIMIT if is_late else Cause.EXITED

    def _num_killed(self) -> int:
        return 0 if self._cgroup is None else self._cgroup.num_killed()

    def _send(self, data: bytes) -> None:
        self._control.settimeout(self._limits.total_wall_s)
        try:
            self._control.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # the program ended first, and `receive` says how
        except OSError as error:
            raise Transient(f"a sandbox is gone: {error}") from error

    def _next(self, deadline: float) -> tuple[bytes, bytes]:
        """(kind, payload). Raises `TimeoutError`, and `Transient` when the sandbox is gone or lies."""
        while not self._frames:
            self._frames += self._read(deadline)
        message, width = self._frames.pop(0), supervisor.NONCE_BYTES
        nonce, kind, payload = message[:width], message[width : width + 1], message[width + 1 :]
        if not hmac.compare_digest(nonce, self._nonce):
            raise Transient("a message from a sandbox does not carry the nonce")
        return kind, payload

    def _read(self, deadline: float) -> list[bytes]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._control.settimeout(left_s)
        try:
            data = self._control.recv(_PIECE)
            if not data:
                raise Transient("a sandbox ended without telling how its program ended")
            return self._buffer.feed(data)
        except (ConnectionError, FrameTooLong) as error:
            raise Transient(f"a sandbox broke down: {error}") from error
