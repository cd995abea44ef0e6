"""Leases run on time as it passes: a wall clock that jumps, forward or back, changes nothing."""

from dataclasses import dataclass
from typing import Any

import pytest

from farflung.coordinator.clock import PoolClock

HOUR_MS = 3_600_000


@dataclass
class TwoClocks:
    """A wall clock that can be set, and time that passes."""

    jump_ms: int = 0
    passed_s: float = 0.0

    def wall_ms(self) -> int:
        return 1_000_000_000 + self.jump_ms + round(self.passed_s * 1000)

    def monotonic_s(self) -> float:
        return 77.0 + self.passed_s

    def start(self, not_before_ms: int = 0) -> PoolClock:
        return PoolClock(not_before_ms, wall_ms=self.wall_ms, monotonic_s=self.monotonic_s)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_jump_of_the_wall_clock_is_not_seen(jump_ms: int) -> None:
    clocks = TwoClocks()
    now_ms = clocks.start()
    assert now_ms() == 1_000_000_000
    clocks.jump_ms = jump_ms
    clocks.passed_s = 2.5
    assert now_ms() == 1_000_002_500


def test_a_restart_never_goes_back_and_follows_a_wall_clock_that_is_ahead() -> None:
    clocks = TwoClocks(jump_ms=-HOUR_MS)
    assert clocks.start(not_before_ms=1_000_000_000)() == 1_000_000_000
    assert clocks.start(not_before_ms=5)() == 1_000_000_000 - HOUR_MS


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
async def test_leases_end_in_their_own_time_when_the_wall_clock_jumps(start: Any, build: Any, jump_ms: int) -> None:
    """X2: neither expired at once, nor an hour too late."""
    clock = build.clock()
    async with start(clock=clock, silent_after_s=3600, forget_after_s=7200) as pool:
        await pool.publish()
        lease = await pool.leased("w1")
        clock.jump_ms += jump_ms
        assert await pool.leased("w1") == lease, "still open after the jump"
        clock.ahead_ms += 30_001
        again = await pool.leased("w1")
        assert again.lease_id != lease.lease_id, "over when its 30 s have passed"


async def test_a_restart_after_the_wall_clock_was_put_back_does_not_lengthen_leases(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(clock=clock) as pool:
        await pool.publish()
        lease = await pool.leased("w1")
    clock.jump_ms -= HOUR_MS
    async with start(clock=clock) as pool:
        assert await pool.leased("w1") == lease
        clock.ahead_ms += 30_001
        assert (await pool.leased("w1")).lease_id != lease.lease_id
