"""What follows when a role ends: a pure function of exit codes and times.

| who ended, how               | what follows                                                             |
|------------------------------|--------------------------------------------------------------------------|
| trainer, code 0              | the run is finished                                                      |
| worker, validator, relay, 0  | it was told that the run is over; should it not be, it starts again      |
| any, code 2                  | the run ends: a person must change something, starting again cannot help |
| any, other code or signal    | start again after a pause that doubles: first, 2 * first, ... up to max  |
| ... too often in a row       | that role is given up; the run ends if nobody else plays it, unless it   |
|                              | is a relay, which the coordinator stands in for                          |

This module does not know processes, clocks or signals.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from farflung.wire.node import Role

EXIT_DONE = 0
EXIT_CRASH = 1
EXIT_USER_ERROR = 2

RETURN_AFTER_S = 5.0
"""Longer than a trainer takes to end after it has told everybody that the run is over."""

OutcomeKind = Literal["finished", "user_error", "gave_up", "stopped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartPolicy:
    first_delay_s: float
    max_delay_s: float
    max_restarts: int
    """Crashes in a row that are answered by a restart."""
    healthy_after_s: float

    def delay_s(self, num_crashes: int) -> float:
        """Pause after crash number `num_crashes` (1-based) in a row."""
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** min(num_crashes - 1, 32))


@dataclass(frozen=True, kw_only=True, slots=True)
class Restart:
    after_s: float
    num_crashes: int
    """In a row, this one included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """It went in order, which is no crash and no news."""

    returns_after_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveUp:
    """This process does not come back; others of its role go on."""

    num_crashes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EndRun:
    kind: OutcomeKind


Decision = Restart | Left | GiveUp | EndRun


@dataclass(slots=True)
class _Process:
    role: Role
    num_crashes: int = 0
    started_s: float | None = None
    due_s: float | None = 0.0
    """When to start; None while it runs and after it was given up."""


class Roster:
    """Who runs, who comes back when. Time is an argument.

    for name in roster.due(now_s): start it, then roster.started(name, now_s)
    decision = roster.exited(name, code, now_s)
    """

    def __init__(self, roles: Mapping[str, Role], policy: RestartPolicy) -> None:
        """`roles`: process name -> what it plays, all to be started at once."""
        self._processes = {name: _Process(role) for name, role in roles.items()}
        self._policy = policy

    def due(self, now_s: float) -> list[str]:
        """Names to start now, in the order given at construction."""
        return [
            name for name, process in self._processes.items() if process.due_s is not None and process.due_s <= now_s
        ]

    def started(self, name: str, now_s: float) -> None:
        process = self._processes[name]
        process.started_s, process.due_s = now_s, None

    def exited(self, name: str, code: int, now_s: float) -> Decision:
        """What follows from this exit; `code` is negative for a signal, as in `subprocess`."""
        process = self._processes[name]
        ran_s = now_s - process.started_s if process.started_s is not None else 0.0
        process.started_s = None
        if process.role is Role.TRAINER and code == EXIT_DONE:
            return EndRun(kind="finished")
        if code == EXIT_USER_ERROR:
            return EndRun(kind="user_error")
        if code == EXIT_DONE and process.role in (Role.WORKER, Role.VALIDATOR, Role.RELAY):
            process.due_s = now_s + RETURN_AFTER_S
            return Left(returns_after_s=RETURN_AFTER_S)
        process.num_crashes = 1 if ran_s >= self._policy.healthy_after_s else process.num_crashes + 1
        if process.num_crashes > self._policy.max_restarts:
            is_needed = process.role is not Role.RELAY and not self._has_peer(name)
            return EndRun(kind="gave_up") if is_needed else GiveUp(num_crashes=process.num_crashes)
        after_s = self._policy.delay_s(process.num_crashes)
        process.due_s = now_s + after_s
        return Restart(after_s=after_s, num_crashes=process.num_crashes)

    def _has_peer(self, name: str) -> bool:
        """Whether another process of the same role runs or will."""
        role = self._processes[name].role
        return any(
            peer.role is role and (peer.started_s is not None or peer.due_s is not None)
            for other, peer in self._processes.items()
            if other != name
        )
