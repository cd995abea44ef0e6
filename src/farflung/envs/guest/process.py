"""The child from outside: started behind walls, asked one question at a time, ended when it breaks a rule.

Every answer is a function of its question, so a child that ended in between is started again and asked once more; one
that took too long is not, since it would again. A child knows the interpreter, this package and what is installed
beside it, all read-only, its own files, an empty folder in memory, and no network, key, home or variable of ours.
"""

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from farflung.envs.guest.protocol import MAX_MESSAGE_BYTES, Answer, Description, Question, plain_text
from farflung.errors import OurFault, Transient, UserError
from farflung.sandbox.code.config import CodePoolConfig
from farflung.sandbox.code.machine import UNSAFE_HINT
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.code.sandbox import Sandbox
from farflung.sandbox.isolation.limits import MIB, Limits
from farflung.wire.pool import EnvArg

Value = TypeVar("Value")

_BOOT = "import sys; sys.path[:0] = {paths!r}; from farflung.envs.guest.inside import main; main()"
_SOURCE = Path(__file__).parents[2]
_PACKAGE_INSIDE, _OURS_INSIDE = "/package", "/ours"
LIMITS = Limits(
    test_cpu_s=60.0,
    test_wall_s=60.0,
    total_wall_s=60.0,
    memory_bytes=1024 * MIB,
    message_bytes=MAX_MESSAGE_BYTES,
    max_processes=16,
    disk_bytes=32 * MIB,
)
"""Of each child; times of single answers are those of `GuestTimes`."""
MAX_CPU_S = 3600.0
"""Of one child; then another takes its place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuestTimes:
    """Seconds on the clock; narrower than a judging step, so that the child is blamed and not its judge."""

    load_s: float = 60.0
    """Start, import, and construction."""
    answer_s: float = 8.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GuestSource:
    """What runs in the child."""

    folder: Path
    """Put on the child's path, and shown to it read-only."""
    reference: str
    """`module:object` of the factory."""
    seed: int
    args: Mapping[str, EnvArg] = field(default_factory=dict)
    hash_seed: int = 0
    """PYTHONHASHSEED of the child."""


class NoWalls(UserError):
    """Nothing can be shut in on this machine, so no child is started."""


class Breach(Exception):
    """The child ended, or said what no child says."""


class GuestProcess:
    """Thread-safe; one question at a time. A fork starts a child of its own.

    Raises:
        NoWalls: nothing can be shut in on this machine.
    """

    def __init__(self, source: GuestSource, *, times: GuestTimes | None = None, limits: Limits = LIMITS) -> None:
        self._source, self._times = source, times or GuestTimes()
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._sandbox: Sandbox | None = None
        self._next_id = 0
        self._description: Description | None = None
        try:
            self._pool = CodePool(CodePoolConfig(limits=limits, num_warm=0, mounts=_mounts(source)))
        except UserError as error:
            raise NoWalls(str(error).removesuffix(UNSAFE_HINT)) from error

    def describe(self) -> Description:
        """What the environment says of itself.

        Raises:
            UserError: the environment refuses its arguments.
            OurFault: it cannot be loaded.
        """
        with self._lock:
            self._started()
            assert self._description is not None, "a started child has described itself"
            return self._description

    def ask(self, method: str, kind: type[Value], *args: Any) -> Value:
        """One call of the environment.

        Raises:
            IndexError, ValueError, UserError: as the environment raised them.
            OurFault: it raised something else, or broke a limit.
        """
        with self._lock:
            for is_last in (False, True):
                sandbox = self._started()
                try:
                    return self._exchange(sandbox, kind, method, list(args), self._times.answer_s)
                except TimeoutError:
                    self._stop()
                    raise OurFault(f"{method} took longer than {self._times.answer_s:g} s") from None
                except Breach as breach:
                    self._stop()
                    if is_last:
                        raise OurFault(f"{method}: {breach}") from None
            raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """End the child, if it is ours."""
        with self._lock:
            self._stop()
        self._pool.close()

    def _started(self) -> Sandbox:
        if self._owner != os.getpid():
            if self._sandbox is not None:
                self._sandbox.forget()
            self._sandbox, self._owner = None, os.getpid()
        if self._sandbox is None:
            self._sandbox = self._start()
        return self._sandbox

    def _start(self) -> Sandbox:
        source = self._source
        try:
            sandbox = self._pool.take()
        except Transient as error:
            raise OurFault(f"no child could be started: {error}") from error
        try:
            sandbox.give(_job(source), MAX_CPU_S)
            load = [source.reference, source.seed, dict(source.args)]
            found = self._exchange(sandbox, Description, "load", load, self._times.load_s)
        except (TimeoutError, Breach, Transient) as error:
            sandbox.kill()
            what = f"took longer than {self._times.load_s:g} s" if isinstance(error, TimeoutError) else str(error)
            raise OurFault(f"loading {source.reference}: {what}") from None
        except (IndexError, ValueError, OurFault) as error:
            sandbox.kill()
            raise error if isinstance(error, UserError | OurFault) else OurFault(str(error)) from None
        if self._description not in (None, found):
            sandbox.kill()
            raise OurFault(f"{source.reference} describes itself otherwise than before")
        self._description = found
        return sandbox

    def _exchange(self, sandbox: Sandbox, kind: type[Value], method: str, args: list[Any], wall_s: float) -> Value:
        """Raises `TimeoutError`, `Breach`, and what the environment raised."""
        self._next_id += 1
        data = msgspec.json.encode(Question(id=self._next_id, method=method, args=args))
        if len(data) > MAX_MESSAGE_BYTES:
            raise OurFault(f"{method} would send {len(data)} bytes: at most {MAX_MESSAGE_BYTES}")
        deadline = time.monotonic() + wall_s
        try:
            sandbox.send(data)
            reply = sandbox.receive(deadline)
        except Transient as error:
            raise Breach(str(error)) from error
        if reply is None:
            if time.monotonic() >= deadline:
                raise TimeoutError
            raise Breach(f"the child ended ({sandbox.ending.cause if sandbox.ending else 'unknown'})")
        return _value(reply, self._next_id, kind)

    def _stop(self) -> None:
        if self._sandbox is not None and self._owner == os.getpid():
            self._sandbox.kill()
        self._sandbox = None


def _value(reply: bytes, expected_id: int, kind: type[Value]) -> Value:
    try:
        answer = msgspec.json.decode(reply, type=Answer)
        if answer.id != expected_id:
            raise Breach(f"an answer to question {answer.id} where {expected_id} was asked")
        if not answer.kind:
            return msgspec.json.decode(answer.value, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Breach(f"an answer that cannot be read: {plain_text(str(error))}") from None
    text = plain_text(answer.error)
    match answer.kind:
        case "IndexError":
            raise IndexError(text)
        case "ValueError":
            raise ValueError(text)
        case "UserError":
            raise UserError(text)
        case _:
            raise OurFault(text)


def _job(source: GuestSource) -> dict[str, object]:
    paths = [_PACKAGE_INSIDE, _OURS_INSIDE, *(inside for _, inside in _installed())]
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",  # noqa: S108 - the child's own
        "PYTHONHASHSEED": str(source.hash_seed),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return {
        "mode": "interpreter",
        "python": os.path.realpath(sys.executable),
        "program": _BOOT.format(paths=paths),
        "environment": environment,
    }


def _mounts(source: GuestSource) -> tuple[tuple[str, str], ...]:
    ours = (str(_SOURCE), f"{_OURS_INSIDE}/{_SOURCE.name}")
    return ((str(source.folder), _PACKAGE_INSIDE), ours, *_installed())


def _installed() -> list[tuple[str, str]]:
    """Where what this package needs is installed."""
    folders = {sysconfig.get_paths()[name]: None for name in ("purelib", "platlib")}
    return [(path, f"/installed-{number}") for number, path in enumerate(folders) if os.path.isdir(path)]
