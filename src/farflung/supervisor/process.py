"""One role as an operating-system process: own session, own log file, on a leash."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from farflung.supervisor.last_words import last_words
from farflung.supervisor.leash import Leash
from farflung.wire.node import Role

LEASH_OPTION = "--leash-fd"
"""Option by which a role is told the descriptor of its leash."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Several processes share the cores, and OpenMP barriers stall when they do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleSpec:
    """How to start one process."""

    name: str
    """Unique on this machine, such as "worker-1"."""
    role: Role
    command: tuple[str, ...]
    log_path: Path
    """Everything that it prints is appended here."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """On top of the supervisor's own."""


class RoleProcess:
    """A started process. Signals go to it alone; a kill goes to everything that it has started."""

    def __init__(self, spec: RoleSpec, leash: Leash) -> None:
        """Starts it. Raises `OSError` when the log or the program cannot be opened."""
        self.spec = spec
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        with spec.log_path.open("ab") as log:
            self._log_start_bytes = log.tell()
            self._process = subprocess.Popen(
                [*spec.command, LEASH_OPTION, str(leash.read_fd)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **ONE_THREAD, **spec.environment},
                pass_fds=(leash.read_fd,),
                start_new_session=True,  # Ctrl-C in the terminal reaches the supervisor alone, which stops in order
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Exit code once it has ended (negative for a signal), else None; what it had started ends with it."""
        code = self._process.poll()
        if code is not None:
            self._kill_group()
        return code

    def ask_to_stop(self) -> None:
        """SIGTERM; no effect on one that has ended."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL for it and everything that it has started, and wait until it is gone."""
        self._kill_group()
        self._process.wait()

    def last_words(self) -> str:
        """What it said of its end in this life; only once it has ended."""
        return last_words(self.spec.log_path, self._process.returncode, self._log_start_bytes)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
