"""Signs of life while a role runs, one more at its end, and none of its trouble is the role's."""

import asyncio
import time

import pytest

from farflung.api.errors import Refused
from farflung.api.presence import heartbeats
from farflung.errors import PeerFault, Transient
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.heartbeat import Vitals
from farflung.wire.node import Heartbeat, Role


class Coordinator:
    """Takes heartbeats, or does not."""

    def __init__(self, error: Exception | None = None) -> None:
        self.beats: list[Heartbeat] = []
        self._error = error
        self.has_beaten = asyncio.Event()

    async def heartbeat(self, heartbeat: Heartbeat) -> None:
        self.beats.append(heartbeat)
        if len(self.beats) >= 3:
            self.has_beaten.set()
        if self._error is not None:
            raise self._error


def some_vitals() -> Vitals:
    return Vitals("w", Role.WORKER, ActivityClock(time.monotonic))


async def test_a_role_says_at_once_and_again_and_again_that_it_lives() -> None:
    coordinator, vitals = Coordinator(), some_vitals()
    async with heartbeats(coordinator, vitals, 0.01):  # type: ignore[arg-type]
        vitals.set_policy_version(3)
        await asyncio.wait_for(coordinator.has_beaten.wait(), 5)
    assert {(beat.node, beat.role) for beat in coordinator.beats} == {("w", Role.WORKER)}
    assert coordinator.beats[-1].policy_version == 3


async def test_the_last_word_is_said_at_the_end() -> None:
    coordinator, vitals = Coordinator(), some_vitals()
    async with heartbeats(coordinator, vitals, 1000.0):  # type: ignore[arg-type]
        await asyncio.sleep(0)
        vitals.add_tokens(7)
    assert [beat.tokens for beat in coordinator.beats] == [0, 7]
    await asyncio.sleep(0.01)
    assert len(coordinator.beats) == 2
    assert len(asyncio.all_tasks()) == 1


async def test_it_is_said_though_the_role_fails() -> None:
    coordinator = Coordinator()

    async def role() -> None:
        async with heartbeats(coordinator, some_vitals(), 1000.0):  # type: ignore[arg-type]
            await asyncio.sleep(0)
            raise RuntimeError("the role's own")

    with pytest.raises(RuntimeError, match="the role's own"):
        await role()
    assert len(coordinator.beats) == 2


@pytest.mark.parametrize("error", [Transient("away"), Refused("bad_request", "no"), PeerFault("x", "y")])
async def test_a_coordinator_that_does_not_listen_is_no_concern_of_the_role(error: Exception) -> None:
    coordinator = Coordinator(error)
    async with heartbeats(coordinator, some_vitals(), 0.01):  # type: ignore[arg-type]
        await asyncio.wait_for(coordinator.has_beaten.wait(), 5)
