"""Real clients over real connections, all at once, twice: the coordinator answers every one of them."""

import asyncio
from pathlib import Path

import pytest
from benchmarks.crowd import crowd


@pytest.mark.slow
def test_1500_clients_come_back_to_a_killed_coordinator_and_each_has_the_next_version(tmp_path: Path) -> None:
    found = asyncio.run(crowd(tmp_path, 1500))  # raises if any of them is refused or has no answer
    assert found.num_clients == 1500
    assert found.peak_bytes < 1 << 30


def test_a_small_crowd_comes_back(tmp_path: Path) -> None:
    assert asyncio.run(crowd(tmp_path, 40)).num_clients == 40
