"""Keeps a run's trackers fed: one process of `farflung forward --follow` for each, beside the roles.

Nothing here ever stops or slows a run. A tracker's process that ends is told once, starts again a few times, and is
then left alone; what it has not taken stays in the run's own files.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from farflung.cli.boundary import EXIT_USER_ERROR
from farflung.cli.run_folder import RunFolder
from farflung.supervisor.last_words import how_it_ended, last_words
from farflung.supervisor.leash import Leash
from farflung.telemetry.sinks.position import read_position

FIRST_PAUSE_S = 2.0
MAX_STARTS = 4
POLL_S = 0.2


class Trackers:
    """For the time of a `with` block.

    Args:
        names: of sinks.
        close_s: that a tracker has for its last rows when the run ends; then it is killed.
        report: takes a sentence for a person, from any thread.
        command: of the process, to which `--leash-fd N` is added; for tests.
    """

    def __init__(
        self,
        names: Sequence[str],
        folder: RunFolder,
        *,
        close_s: float,
        report: Callable[[str], None],
        command: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        self._folder = folder
        self._close_s = close_s
        self._report = report
        self._command = command or self._forward_command
        self._stop = threading.Event()
        self._threads = {
            name: threading.Thread(target=self._keep, args=(name,), name=f"tracker {name}", daemon=True)
            for name in names
        }
        self._leash = Leash()

    def __enter__(self) -> Self:
        for thread in self._threads.values():
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads.values():
            thread.join()
        self._leash.close()

    def _keep(self, name: str) -> None:
        """Start, wait, start again; in the thread of this tracker."""
        for number in range(1, MAX_STARTS + 1):
            try:
                process, since_bytes = self._start(name)
            except OSError as error:
                self._report(f"{name} cannot be started, the run goes on without it: {error}")
                return
            code = self._wait(name, process)
            if code is None:
                return
            words = last_words(self._log(name), code, since_bytes)
            is_final = code == EXIT_USER_ERROR or number == MAX_STARTS
            if number == 1 or is_final:
                what_follows = "the run goes on without it" if is_final else "starting it again"
                self._report(f"{name} {how_it_ended(code)}{': ' + words if words else ''}; {what_follows}")
            if is_final or self._stop.wait(FIRST_PAUSE_S * 2 ** (number - 1)):
                return

    def _forward_command(self, name: str) -> Sequence[str]:
        python = (sys.executable, "-P", "-m", "farflung.cli.main")
        return (*python, "forward", str(self._folder.root), "--to", name, "--follow")

    def _log(self, name: str) -> Path:
        return self._folder.logs / f"{name}.log"

    def _start(self, name: str) -> tuple["subprocess.Popen[bytes]", int]:
        """The process, and where its words in the log begin."""
        self._folder.logs.mkdir(parents=True, exist_ok=True)
        with self._log(name).open("ab") as log:
            since_bytes = log.tell()
            process = subprocess.Popen(
                [*self._command(name), "--leash-fd", str(self._leash.read_fd)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._leash.read_fd,),
                start_new_session=True,
            )
        return process, since_bytes

    def _wait(self, name: str, process: "subprocess.Popen[bytes]") -> int | None:
        """Exit code of one that ended by itself; None once the run is over and the tracker has ended or was killed."""
        while not self._stop.wait(POLL_S):
            if (code := process.poll()) is not None:
                return code
        process.terminate()
        deadline_s = time.monotonic() + self._close_s
        while process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(POLL_S / 4)
        is_late = process.poll() is None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # trackers start processes of their own
        process.wait()
        if is_late or process.returncode != 0:
            self._report(
                f"{name} has not taken everything; `farflung forward {self._folder.root} --to {name}` sends the rest"
            )
        return None


def delivered(folder: RunFolder, name: str) -> str:
    """What a tracker has of a run, for the report at the end."""
    position = read_position(folder.sink_position(name))
    failures = f", {position.num_failures} attempts failed" if position.num_failures else ""
    return f"{name}: {position.num_points} rows{failures}"
