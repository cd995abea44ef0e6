"""`farflung forward RUN --to SINK`: what a run has written, to a tracker, in this process.

With `--follow` it goes on until it is asked to stop, which is how `farflung run` has a run forwarded while it lasts.
"""

import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from farflung.cli.config import RunConfig
from farflung.cli.run_folder import RunFolder
from farflung.config.load import load
from farflung.errors import UserError
from farflung.supervisor.leash import hold
from farflung.telemetry.logs import log_to_stderr
from farflung.telemetry.sinks.base import Target, sink_factory
from farflung.telemetry.sinks.forward import Forwarder
from farflung.telemetry.sinks.position import read_position

SHOWN_SECTIONS = {"environment", "pool", "trainer"}
"""Of the configuration, to the tracker: what is learned and how. Addresses and folders stay here."""


def run_forward(arguments: Namespace) -> int:
    """Returns 0 when all was delivered, 1 when the tracker did not take all of it.

    Raises:
        UserError: no run there, or the tracker's package is not installed.
    """
    log_to_stderr(arguments.to)
    if arguments.leash_fd is not None:
        hold(arguments.leash_fd)
    folder = run_folder(Path(arguments.run))
    config = load(RunConfig, folder.config).config
    factory = sink_factory(arguments.to)
    position_path = folder.sink_position(arguments.to)
    position = read_position(position_path)
    target = target_of(config, folder, position.run_id)
    forwarder = Forwarder((folder.metrics, folder.usage), position, position_path, lambda: factory(target))
    with _stop_on_signals() as stop:
        is_whole = forwarder.run(stop, follow=arguments.follow)
    delivered = f"{position.num_points} rows of {folder.root} are with {arguments.to}"
    if is_whole:
        sys.stdout.write(f"{delivered}\n")
        return 0
    sys.stderr.write(f"farflung: {delivered}, then: {position.last_failure}; the same command sends the rest\n")
    return 1


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Set by Ctrl-C and by a request to end."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_folder(root: Path) -> RunFolder:
    """Raises `UserError` if it holds no run."""
    folder = RunFolder(root=root)
    if not folder.config.is_file():
        raise UserError(f"{root} is no run: there is no {folder.config}; give a run's folder, such as runs/demo")
    return folder


def target_of(config: RunConfig, folder: RunFolder, run_id: str) -> Target:
    telemetry = config.telemetry
    settings: dict[str, Any] = config.model_dump(mode="json", include=SHOWN_SECTIONS)
    return Target(
        project=telemetry.project,
        run_name=telemetry.run_name or config.run.name,
        run_id=run_id,
        folder=folder.root.resolve(),
        is_offline=telemetry.offline,
        settings={**settings, "seed": config.run.seed},
    )
