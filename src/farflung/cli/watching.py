"""Puts the live view together: who looks, where it is shown, and who keeps the account."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from farflung.api.tls import client_context
from farflung.cli.config import RunConfig, coordinator_url
from farflung.cli.report.usage import UsageLog
from farflung.cli.run_folder import RunFolder
from farflung.cli.view.live import Display, LineDisplay, LiveDisplay, StatusSource, Watch
from farflung.cli.view.state import RunState
from farflung.telemetry.metrics import MetricsLog

logger = logging.getLogger(__name__)


@contextmanager
def watching(config: RunConfig, folder: RunFolder, own: frozenset[str]) -> Iterator[Watch]:
    """Look at the run until the block ends; then the account is closed and the terminal is as before.

    Args:
        own: names of the processes on this machine.
    """
    usage = UsageLog(metrics=MetricsLog(folder.usage), own=own)
    state = RunState(
        name=config.run.name,
        environment=config.environment.name,
        max_versions=config.trainer.max_versions,
        max_staleness=config.pool.max_staleness,
        started_s=time.monotonic(),
    )
    watch = Watch(
        _source(config, folder),
        folder.metrics,
        state,
        _display(),
        account=usage.add,
        tls=client_context(config.run.ca_file),
    )
    watch.start()
    try:
        yield watch
    finally:
        watch.close()
        usage.end()


def _source(config: RunConfig, folder: RunFolder) -> str | StatusSource:
    """The coordinator; a local run's own file where there is none."""
    if not config.run.local:
        return coordinator_url(config)
    from farflung.local.tally import StatusFile

    return StatusFile(folder.root)


def _display() -> Display:
    console = Console(file=sys.stdout)
    if console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf"):
        return LiveDisplay(console)
    return LineDisplay(_print_line)


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
