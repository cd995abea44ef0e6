"""`farflung` commands as operating-system processes, and what the system tells of processes.

Only processes that a test has started, and their children, are ever sent a signal.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FARFLUNG = (sys.executable, "-P", "-m", "farflung.cli.main")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
PATIENCE_S = 150.0
"""Far beyond what anything here takes on a loaded machine, and within the time limit of a test."""


def run_command(
    *words: str, timeout_s: float = PATIENCE_S, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    return subprocess.run(
        [*FARFLUNG, *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=ENVIRONMENT,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        check=False,
    )


class Process:
    """A `farflung` command in the background, with what it prints in one file."""

    def __init__(self, words: Sequence[str], log_path: Path, environment: Mapping[str, str] = ENVIRONMENT) -> None:
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*FARFLUNG, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(environment)
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    @property
    def output(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")


def children(pid: int) -> list[int]:
    """Processes that it has started and that run."""
    found = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [child for child in found if _parent(child) == pid]


def role_name(pid: int) -> str | None:
    """The name of a role's log file without its ending; None for another process, or one that is not yet started."""
    words = _words(pid)
    return Path(words[words.index("--log") + 1]).stem if "--log" in words[:-1] else None


def belongs_to(pid: int, folder: Path) -> bool:
    """Whether the process runs and was started with a path under the folder, so that the id is not another's by now."""
    return _parent(pid) is not None and any(word.startswith(f"{folder}/") for word in _words(pid))


def _parent(pid: int) -> int | None:
    """None when there is no such process, or it has ended and its parent did not look yet."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else int(parent)


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
