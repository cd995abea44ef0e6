"""Runs of real processes that are always cleaned up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from real_run import RealRun, StartRun


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[StartRun]:
    """Makes runs in the test's own folder; whatever they have started is gone when the test is over."""
    runs: list[RealRun] = []

    def make(*settings: str) -> RealRun:
        runs.append(RealRun(tmp_path, *settings))
        return runs[-1]

    yield make
    for run in runs:
        run.clean_up()
