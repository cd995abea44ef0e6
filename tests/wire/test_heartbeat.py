"""A heartbeat ends up in the terminals and totals of others."""

import pytest

from farflung.errors import PeerFault
from farflung.wire.node import Heartbeat, Role


def heartbeat(activity: str = "sampling", busy_s: float = 1.0) -> Heartbeat:
    return Heartbeat(
        node="w1", role=Role.WORKER, policy_version=3, activity=activity, busy_s=busy_s, idle_s=0.0, cpu_s=0.5
    )


@pytest.mark.parametrize("activity", ["\x1b[2Jgone", "\x1b]0;title\x07", "[/nope]", "line\nbreak", "x" * 81])
def test_an_activity_that_could_draw_on_a_terminal_is_refused(activity: str) -> None:
    with pytest.raises(ValueError, match="plain words"):
        heartbeat(activity=activity)


@pytest.mark.parametrize("busy_s", [-1.0, 1e300])
def test_times_that_would_spoil_totals_are_refused(busy_s: float) -> None:
    with pytest.raises(ValueError, match="times and rates"):
        heartbeat(busy_s=busy_s)


def test_the_bytes_of_a_stranger_are_held_to_the_same_rules() -> None:
    data = heartbeat().to_bytes().replace(b'"sampling"', b'"[red]"')
    with pytest.raises(PeerFault, match="plain words"):
        Heartbeat.from_bytes(data)
