"""The thread that looks at a run: asks the coordinator, reads the metrics, draws, and keeps an account of time.

Losing sight never stops the run: what does not answer is asked again a second later.
"""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.live import Live

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.cli.view import plain
from farflung.cli.view.screen import screen
from farflung.cli.view.state import Figures, RunState
from farflung.errors import PeerFault, Transient
from farflung.telemetry.metrics import STEPPED_BACK, MetricsTail
from farflung.wire.node import PoolStatus, Role

POLL_S = 1.0
STATUS_TIMEOUT_S = 5.0
NODE_NAME = "view"


class Display(Protocol):
    """Where figures are shown."""

    def show(self, figures: Figures) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


class LiveDisplay:
    """Redraws one screen in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def show(self, figures: Figures) -> None:
        self._live.update(screen(figures, self._console.width, self._console.height), refresh=True)

    def note(self, text: str) -> None:
        """Notes are part of the next screen."""

    def close(self) -> None:
        self._live.stop()


class LineDisplay:
    """Prints one line every few seconds."""

    def __init__(self, write: Callable[[str], None], *, every_s: float = 5.0) -> None:
        self._write = write
        self._every_s = every_s
        self._next_s = 0.0

    def show(self, figures: Figures) -> None:
        if figures.elapsed_s >= self._next_s:
            self._write(plain.line(figures))
            self._next_s = figures.elapsed_s + self._every_s

    def note(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        """Nothing to put back."""


class StatusSource(Protocol):
    """Who knows how the run stands."""

    async def status(self) -> PoolStatus:
        """Raises `Transient` when it cannot be asked now."""
        ...


class Watch:
    """Started and closed with the run.

    Args:
        source: URL of the coordinator, or who else can be asked.
        metrics_path: the trainer's metrics.jsonl.
        state: what is folded into; only this thread touches it once `start` was called, except for notes.
        tls: how an https coordinator is checked; None = as the system does it.
        account: takes each status with the monotonic time at which it came, and whether it was asked for by `look`.
    """

    def __init__(
        self,
        source: str | StatusSource,
        metrics_path: Path,
        state: RunState,
        display: Display,
        *,
        account: Callable[[PoolStatus, float, bool], None],
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._tls = tls
        self._tail = MetricsTail(metrics_path)
        self._state = state
        self._state.add_rows(self._tail.poll())  # of earlier starts
        self._display = display
        self._account = account
        self._now = now
        self._wake = threading.Event()
        """Set to look again before the second is over."""
        self._is_closing = False
        self._has_told_faults = False
        self._answered = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="view", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self, timeout_s: float = STATUS_TIMEOUT_S) -> None:
        """Look once more now, and wait for it: the last figures before the coordinator is stopped."""
        self._answered.clear()
        self._wake.set()
        self._answered.wait(timeout_s)

    def note(self, text: str) -> None:
        """Something that a person should see happened; any thread may tell."""
        self._state.add_note(text)
        self._display.note(text)

    def close(self) -> None:
        """Draw a last time and leave the terminal as it was."""
        self._is_closing = True
        self._wake.set()
        self._thread.join()
        self._display.close()

    async def _run(self) -> None:
        async with _asked(self._source, self._tls) as client:
            while not self._is_closing:
                was_asked = self._wake.is_set()
                self._wake.clear()
                await self._look_once(client, was_asked)
                if was_asked:
                    self._answered.set()
                await asyncio.to_thread(self._wake.wait, POLL_S)
        self._read_rows()
        self._display.show(self._state.figures(self._now()))

    async def _look_once(self, client: StatusSource, was_asked: bool) -> None:
        status = None
        with contextlib.suppress(Transient, Refused, PeerFault):
            status = await client.status()
        now_s = self._now()
        self._state.add_status(status, now_s)
        self._read_rows()
        if status is not None and status.grading_faults and not self._has_told_faults:
            self._has_told_faults = True
            faults = ", ".join(f"{fault} {number}" for fault, number in status.grading_faults.items())
            self.note(f"not every completion can be graded: {faults}; the run's logs say more")
        if status is not None:
            self._account(status, now_s, was_asked)
        self._display.show(self._state.figures(now_s))

    def _read_rows(self) -> None:
        rows = list(self._tail.poll())
        self._state.add_rows(rows)
        for row in rows:
            if row["kind"] == STEPPED_BACK:
                self.note(f"goes on from version {row['version']}: up to {row['from_version']} is made again")
            elif row["kind"] == "changes":
                self.note(f"goes on with changes that were accepted: {row.get('changes')}")


@contextlib.asynccontextmanager
async def _asked(source: str | StatusSource, tls: ssl.SSLContext | None) -> AsyncIterator[StatusSource]:
    if not isinstance(source, str):
        yield source
        return
    async with CoordinatorClient(
        source, node=NODE_NAME, role=Role.COORDINATOR, timeout_s=STATUS_TIMEOUT_S, tls=tls
    ) as client:
        yield client
