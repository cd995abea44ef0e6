"""U1: trackers beside a run that are absent, crash or hang cost the run nothing but a sentence."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from farflung.cli import trackers
from farflung.cli.run_folder import RunFolder
from farflung.cli.trackers import Trackers, delivered
from farflung.telemetry.sinks.position import Position, write_position

ABSENT = "import sys; print('farflung: wandb is not installed'); sys.exit(2)"
CRASH = "raise MemoryError('no room')"
WAIT = "; print('up', flush=True); time.sleep(60)"
HANG = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + WAIT
WELL = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))" + WAIT


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(trackers, "POLL_S", 0.01)


def playing(code: str) -> Callable[[str], Sequence[str]]:
    return lambda _name: (sys.executable, "-c", code)


def during_a_run(folder: RunFolder, code: str, until: Callable[[list[str]], bool], close_s: float = 5.0) -> list[str]:
    """What is told of one tracker whose process runs `code`, while a run lasts until `until`."""
    told: list[str] = []
    with Trackers(["wandb"], folder, close_s=close_s, report=told.append, command=playing(code)):
        deadline_s = time.monotonic() + 20
        while not until(told) and time.monotonic() < deadline_s:
            time.sleep(0.01)
    return told


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(root=tmp_path)


def is_up(folder: RunFolder) -> Callable[[list[str]], bool]:
    log = folder.logs / "wandb.log"
    return lambda _told: log.exists() and "up" in log.read_text()


def test_one_that_is_not_installed_is_told_once_and_left_alone(folder: RunFolder) -> None:
    told = during_a_run(folder, ABSENT, lambda told: bool(told))
    assert told == ["wandb ended with code 2: wandb is not installed; the run goes on without it"]


def test_one_that_crashes_is_started_again_a_few_times(folder: RunFolder) -> None:
    told = during_a_run(folder, CRASH, lambda told: len(told) == 2)
    assert told == [
        "wandb ended with code 1: MemoryError: no room; starting it again",
        "wandb ended with code 1: MemoryError: no room; the run goes on without it",
    ]
    assert (folder.logs / "wandb.log").read_text().count("Traceback") == trackers.MAX_STARTS


def test_one_that_hangs_is_killed_at_the_end_and_the_command_for_the_rest_is_told(folder: RunFolder) -> None:
    told = during_a_run(folder, HANG, is_up(folder), close_s=0.1)
    assert told == [f"wandb has not taken everything; `farflung forward {folder.root} --to wandb` sends the rest"]


def test_one_that_is_well_is_not_mentioned(folder: RunFolder) -> None:
    assert during_a_run(folder, WELL, is_up(folder)) == []


def test_a_run_without_trackers_starts_nothing(folder: RunFolder) -> None:
    with Trackers([], folder, close_s=1.0, report=lambda _: None, command=playing("1/0")):
        pass
    assert not folder.logs.exists()


def test_the_report_says_what_a_tracker_has(folder: RunFolder) -> None:
    assert delivered(folder, "wandb") == "wandb: 0 rows"
    write_position(folder.sink_position("wandb"), Position(num_points=7, num_failures=2))
    assert delivered(folder, "wandb") == "wandb: 7 rows, 2 attempts failed"
