"""One file per role; importing configures nothing."""

import contextlib
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from farflung.telemetry.logs import log_to_file


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        with contextlib.suppress(OSError):  # one of them writes to a full disk
            handler.close()
    root.handlers = handlers
    root.setLevel(level)
    logging.getLogger("farflung").setLevel(logging.NOTSET)
    logging.captureWarnings(False)


def test_a_line_has_time_role_level_name_and_message(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "worker-1.log"
    log_to_file("worker-1", path)
    logging.getLogger("farflung.worker").info("slot %d", 17)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} worker-1 INFO farflung.worker: slot 17\n", path.read_text()
    )


def test_libraries_speak_from_warnings_on_and_python_warnings_are_logged(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log_to_file("x", path)
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").warning("trouble")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old function", stacklevel=1)
    text = path.read_text()
    assert "chatter" not in text
    assert "trouble" in text
    assert "old function" in text


def test_warnings_reach_stderr_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_file("x", tmp_path / "quiet.log")
    logging.getLogger("farflung").warning("first")
    assert capsys.readouterr().err == ""
    log_to_file("x", tmp_path / "loud.log", warnings_to_stderr=True)
    logging.getLogger("farflung").info("second")
    logging.getLogger("farflung").warning("third")
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()] == ["third"]


def test_a_full_disk_is_reported_once_and_costs_only_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_file("x", Path("/dev/full"))
    for number in range(3):
        logging.getLogger("farflung").warning("line %d", number)
    err = capsys.readouterr().err
    assert err.count("log lines are lost from now on: /dev/full: ") == 1
    assert "Traceback" not in err


def test_importing_the_package_configures_no_logging() -> None:
    code = (
        "import logging, farflung.telemetry.logs, farflung.telemetry.metrics, farflung.telemetry.heartbeat;"
        "assert not logging.getLogger().handlers and logging.getLogger('farflung').level == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
