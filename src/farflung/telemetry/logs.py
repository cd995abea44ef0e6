"""One log file per role.

    2026-08-03 12:00:00,123 worker-1 INFO farflung.worker.service: slot 17 sampled in 1.2 s

Nothing is configured at import: a process calls one of these functions once, in its `main`.
"""

import logging
import sys
from pathlib import Path

LINE_FORMAT = "%(asctime)s {role} %(levelname)s %(name)s: %(message)s"


class _FileHandler(logging.FileHandler):
    """A full disk costs log lines, not the run: reported once on stderr and counted."""

    num_lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (name given by logging)
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        if self.num_lost == 0:
            sys.stderr.write(f"log lines are lost from now on: {self.baseFilename}: {error}\n")
        self.num_lost += 1


def log_to_file(role: str, path: Path, *, level: int = logging.INFO, warnings_to_stderr: bool = False) -> None:
    """Send this process's log to `path` (appended), and warnings also to stderr if asked.

    Args:
        role: stands in each line, such as "worker-1".
        level: of farflung's own loggers; libraries speak from WARNING on.

    Raises:
        OSError: the file cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [_FileHandler(path, encoding="utf-8")]
    if warnings_to_stderr:
        stderr = logging.StreamHandler(sys.stderr)
        stderr.setLevel(logging.WARNING)
        handlers.append(stderr)
    _configure(role, handlers, level)


def log_to_stderr(role: str, *, level: int = logging.INFO) -> None:
    """Send this process's log to the terminal that it was started from; arguments as above."""
    _configure(role, [logging.StreamHandler(sys.stderr)], level)


def _configure(role: str, handlers: list[logging.Handler], level: int) -> None:
    formatter = logging.Formatter(LINE_FORMAT.format(role=role.replace("%", "%%")))
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=handlers, force=True)
    logging.getLogger("farflung").setLevel(level)
    logging.captureWarnings(True)
