"""The first process of a sandbox: holds the private channel, passes messages, bounds output, sees the end.

    outside --nonce, task, messages--> supervisor --task, messages--> program
    outside <--nonce, kind, bytes----- supervisor <--messages, stdout, stderr, exit--- program

The program is forked before the nonce arrives, so no copy of the nonce is ever in its memory; it cannot signal, trace
or read process 1. The supervisor does not know what a task is, and never sees an expected result.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C halves, without the names as an Enum (see `enter`)
import _socket
import fcntl
import os
import select

from farflung.sandbox.code.inside.frames import FrameBuffer, FrameTooLong, frame, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable
    from typing import NoReturn

    from farflung.sandbox.isolation.limits import Limits

READY, MESSAGE, STDOUT, STDERR, END, BROKEN = b"R", b"M", b"O", b"E", b"X", b"B"
NONCE_BYTES = 32
NO_NONCE = bytes(NONCE_BYTES)
"""Sent with what is said before there is one: `READY` and `BROKEN`."""
OVERHEAD_BYTES = 1 << 16
STDERR_TAIL_BYTES = 1 << 14
_PIECE = 1 << 16


class Supervisor:
    """One program's keeper. `supervise` is the way in."""

    def __init__(self, control: int, rpc: int, out: int, err: int, child: int, limits: Limits) -> None:
        self._control, self._rpc, self._child, self._limits = control, rpc, child, limits
        self._pipes = {out: bytearray(), err: bytearray()}
        self._out, self._err = out, err
        self._num_err_bytes = 0
        self._nonce: bytes | None = None
        self._cause = "exited"
        self._to_program = bytearray()
        self._from_outside = FrameBuffer(limits.message_bytes + OVERHEAD_BYTES)
        self._from_program = FrameBuffer(limits.message_bytes)
        self._poll = select.poll()
        for descriptor in (control, rpc, out, err):
            self._poll.register(descriptor, select.POLLIN)

    def run(self, wakeup: int) -> None:
        """Until the program has ended and that was told."""
        self._poll.register(wakeup, select.POLLIN)
        while (usage := self._ended()) is None:
            for descriptor, events in self._poll.poll():
                if descriptor == wakeup:
                    os.read(wakeup, _PIECE)
                elif descriptor == self._rpc and events & select.POLLOUT:
                    self._flush()
                else:
                    self._read(descriptor)
        self._drain()
        self._tell_end(*usage)

    def _ended(self) -> tuple[int, resource.struct_rusage] | None:
        """(status, usage) of the program once it is gone, all its descendants with it."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == 0:
                return None
            if pid == self._child:
                kill_everything(self._child)
                return status, usage

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _PIECE)
        except (BlockingIOError, ConnectionResetError):
            data = b""
        if descriptor == self._control:
            if not data:
                os._exit(0)  # nobody is waiting any more; everything in here dies with this process
            self._take(data)
        elif not data:
            self._poll.unregister(descriptor)
        elif descriptor == self._rpc:
            self._pass_on(data)
        else:
            self._collect(descriptor, data)

    def _take(self, data: bytes) -> None:
        for payload in self._from_outside.feed(data):
            if self._nonce is None:
                self._nonce = payload
            else:
                self._to_program += frame(payload)
        self._flush()

    def _flush(self) -> None:
        """Never waits for a program that does not read."""
        try:
            while self._to_program:
                del self._to_program[: os.write(self._rpc, self._to_program)]
        except BlockingIOError:
            self._poll.modify(self._rpc, select.POLLIN | select.POLLOUT)
            return
        except OSError:
            self._to_program.clear()  # it hung up; its end is seen elsewhere
            return
        if self._cause == "exited":
            self._poll.modify(self._rpc, select.POLLIN)

    def _pass_on(self, data: bytes) -> None:
        try:
            messages = self._from_program.feed(data)
        except FrameTooLong:
            self._stop("message_limit")
            return
        for message in messages:
            self.tell(MESSAGE, message)

    def _collect(self, descriptor: int, data: bytes) -> None:
        kept = self._pipes[descriptor]
        kept += data
        if descriptor == self._err:
            self._num_err_bytes += len(data)
            del kept[:-STDERR_TAIL_BYTES]
        if max(len(self._pipes[self._out]), self._num_err_bytes) > self._limits.output_bytes:
            self._stop("output_limit")

    def _stop(self, cause: str) -> None:
        self._cause = cause
        for descriptor in (self._rpc, self._out, self._err):
            try:
                self._poll.unregister(descriptor)
            except KeyError:
                continue  # had ended by itself
        os.kill(self._child, _signal.SIGKILL)

    def _drain(self) -> None:
        """What was written before the end. Nobody is left who could write."""
        if self._cause != "exited":
            return
        for descriptor, read in ((self._rpc, self._pass_on), (self._out, None), (self._err, None)):
            while self._cause == "exited" and (data := _read_rest(descriptor)):
                if read is None:
                    self._collect_rest(descriptor, data)
                else:
                    read(data)

    def _collect_rest(self, descriptor: int, data: bytes) -> None:
        kept = self._pipes[descriptor]
        kept += data
        if descriptor == self._err:
            del kept[:-STDERR_TAIL_BYTES]
        elif len(kept) > self._limits.output_bytes:
            self._cause = "output_limit"

    def _tell_end(self, status: int, usage: resource.struct_rusage) -> None:
        self.tell(STDOUT, bytes(self._pipes[self._out][: self._limits.output_bytes]))
        self.tell(STDERR, bytes(self._pipes[self._err]))
        code = os.waitstatus_to_exitcode(status)
        exit_code, signal = (code, "null") if code >= 0 else ("null", -code)
        cpu_s = usage.ru_utime + usage.ru_stime
        end = f'"exit_code": {exit_code}, "signal": {signal}, "cpu_s": {cpu_s:f}, "cause": "{self._cause}"'
        self.tell(END, f"{{{end}}}".encode())

    def tell(self, kind: bytes, payload: bytes) -> None:
        """One message to the outside, under the nonce."""
        write_all(self._control, frame((self._nonce or NO_NONCE) + kind + payload))


def kill_everything(child: int) -> None:
    """All that the program started: threads, children, daemons."""
    if os.getpid() != 1:  # not shut in (a user's own code): the program's session
        _kill_unless_gone(-child)
        return
    while True:
        _kill_unless_gone(-1)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill_unless_gone(target: int) -> None:
    try:
        os.kill(target, _signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _read_rest(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _PIECE)
    except (BlockingIOError, ConnectionResetError):
        return b""


def supervise(
    control: int, limits: Limits, harden: Callable[[], None], program: Callable[[int, Limits], NoReturn]
) -> NoReturn:
    """Harden this process, fork the program, say that all is ready, watch.

    Args:
        control: our end of the private channel.
        harden: takes rights away for good; raises `OSError`.
        program: what the child does; its argument is the descriptor for messages.
    """
    try:
        harden()
        rpc, rpc_child = _socket_pair()
        out, out_child = os.pipe()
        err, err_child = os.pipe()
        child = os.fork()
    except OSError as error:
        write_all(control, frame(NO_NONCE + BROKEN + str(error).encode()))
        os._exit(1)
    if child == 0:
        _become_program(rpc_child, out_child, err_child)
        program(RPC, limits)
    for descriptor in (rpc_child, out_child, err_child):
        os.close(descriptor)
    for descriptor in (rpc, out, err):
        os.set_blocking(descriptor, False)
    wakeup = _wake_on_child()
    supervisor = Supervisor(control, rpc, out, err, child, limits)
    try:
        supervisor.tell(READY, b"")
        supervisor.run(wakeup)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)  # the outside is gone
    os._exit(0)


RPC = 3
"""The program's descriptor for messages."""


def _socket_pair() -> tuple[int, int]:
    one, other = _socket.socketpair()
    return one.detach(), other.detach()


def _become_program(rpc: int, out: int, err: int) -> None:
    """Descriptors 0 to 3 and nothing else: above all not the channel."""
    os.setsid()
    sources = (os.open("/dev/null", os.O_RDONLY), out, err, rpc)
    for target, source in enumerate([fcntl.fcntl(source, fcntl.F_DUPFD, 64) for source in sources]):
        os.dup2(source, target)
    os.closerange(RPC + 1, 1024)


def _wake_on_child() -> int:
    reader, writer = os.pipe()
    for descriptor in (reader, writer):
        os.set_blocking(descriptor, False)
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    return reader
