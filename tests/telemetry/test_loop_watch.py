"""A loop that stands still is named."""

import asyncio
import logging
import time

import pytest

from farflung.telemetry.loop_watch import loop_watch


def reward_that_blocks(seconds: float) -> None:
    time.sleep(seconds)


async def test_H1_a_blocked_event_loop_is_named_and_goes_on(  # noqa: N802
    caplog: pytest.LogCaptureFixture,
) -> None:
    with loop_watch(longest_lag_s=0.1):
        await asyncio.sleep(0.05)
        assert caplog.records == []
        reward_that_blocks(0.6)
        await asyncio.sleep(0.1)
    still, again = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert "stands still, in" in still.message
    assert "reward_that_blocks" in still.message
    assert "test_loop_watch.py" in still.message
    assert "stood still for 0." in again.message


async def test_a_loop_that_is_only_busy_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    with loop_watch(longest_lag_s=0.5):
        deadline_s = time.monotonic() + 1.0
        while time.monotonic() < deadline_s:  # noqa: ASYNC110 - the loop has to come round all the time
            await asyncio.sleep(0)
    assert caplog.records == []


async def test_the_watch_ends_with_its_block_even_while_the_loop_stands_still() -> None:
    started_s = time.monotonic()
    with loop_watch(longest_lag_s=0.05):
        time.sleep(0.3)  # noqa: ASYNC251 - this is what is watched for
    assert time.monotonic() - started_s < 5.0
