"""Retries until the patience ends, and a stop that interrupts every wait."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from farflung.api import patience as patience_module
from farflung.api.errors import Refused
from farflung.api.patience import Patience, Stopped
from farflung.errors import PeerFault, Transient


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(patience_module, "MAX_DELAY_S", 0.01)


def a_patience(longest_s: float = 5.0) -> tuple[Patience, asyncio.Event]:
    stop = asyncio.Event()
    return Patience(stop, longest_s), stop


def failing(num_failures: int, error: Exception | None = None) -> tuple[Callable[[], Awaitable[str]], list[int]]:
    calls: list[int] = []

    async def call() -> str:
        calls.append(1)
        if len(calls) <= num_failures:
            raise error or Transient("away")
        return "there"

    return call, calls


async def test_passing_trouble_is_retried_until_it_has_passed() -> None:
    patience, _ = a_patience()
    call, calls = failing(5)
    assert await patience(call) == "there"
    assert len(calls) == 6


async def test_it_gives_up_with_the_last_error_and_says_after_how_long() -> None:
    patience, _ = a_patience(0.05)
    call, calls = failing(10**9)
    with pytest.raises(Transient, match=r"away \(gave up after 0\.05 s\)"):
        await patience(call)
    assert len(calls) > 1


async def test_patience_counts_from_the_first_failure() -> None:
    """A long poll that breaks after longer than the patience is no reason to give up at once."""
    patience, _ = a_patience(0.05)
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.sleep(0.1)
            raise Transient("the coordinator went away in the middle of a poll")
        return "there"

    assert await patience(call) == "there"


async def test_each_call_has_the_whole_patience() -> None:
    patience, _ = a_patience(0.1)
    for _ in range(4):
        call, _ = failing(1)
        assert await patience(call) == "there"
        await asyncio.sleep(0.04)


@pytest.mark.parametrize("error", [Refused("not_found", "no"), PeerFault("x", "y"), ValueError("z")])
async def test_every_other_error_passes_at_once(error: Exception) -> None:
    patience, _ = a_patience()
    call, calls = failing(1, error)
    with pytest.raises(type(error)):
        await patience(call)
    assert len(calls) == 1


async def test_a_stop_interrupts_a_call_and_cancels_it() -> None:
    patience, stop = a_patience()
    was_cancelled = asyncio.Event()

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    task = asyncio.create_task(patience(call))
    await asyncio.sleep(0.01)
    stop.set()
    with pytest.raises(Stopped):
        await asyncio.wait_for(task, 1)
    assert was_cancelled.is_set()


async def test_a_stop_interrupts_the_pause_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "FIRST_DELAY_S", 1000.0)
    monkeypatch.setattr(patience_module, "MAX_DELAY_S", 1000.0)
    patience, stop = a_patience(10_000)
    call, calls = failing(1)
    task = asyncio.create_task(patience(call))
    await asyncio.sleep(0.01)
    assert calls == [1]
    stop.set()
    with pytest.raises(Stopped):
        await asyncio.wait_for(task, 1)


async def test_a_stop_interrupts_a_sleep() -> None:
    patience, stop = a_patience()
    task = asyncio.create_task(patience.sleep(1000))
    await asyncio.sleep(0)
    stop.set()
    with pytest.raises(Stopped):
        await asyncio.wait_for(task, 1)


async def test_after_a_stop_nothing_is_waited_for() -> None:
    patience, stop = a_patience()
    stop.set()
    with pytest.raises(Stopped):
        await patience(asyncio.Event().wait)
    with pytest.raises(Stopped):
        await patience.sleep(1000)


async def test_what_is_done_when_the_stop_comes_counts() -> None:
    patience, stop = a_patience()

    async def call() -> str:
        stop.set()
        return "done"

    assert await patience(call) == "done"


async def test_a_cancelled_role_cancels_its_call() -> None:
    patience, _ = a_patience()
    was_cancelled = asyncio.Event()

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    task = asyncio.create_task(patience(call))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert was_cancelled.is_set()
    assert len(asyncio.all_tasks()) == 1
