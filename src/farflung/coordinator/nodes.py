"""Who is alive, by what was last heard. Soft state: after a restart everyone counts as heard of at the start.

This module does not know leases or HTTP.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from farflung.wire.node import MAX_LISTED, Heartbeat, NodeStatus, Role

MAX_NODES = 4096
"""Nodes that are remembered; the longest silent make room."""


@dataclass(slots=True)
class _Sighting:
    last_seen_ms: int
    heartbeat: Heartbeat | None = None
    policy_version: int = -1


class NodeBook:
    """Times in milliseconds of whatever clock the caller uses.

    Args:
        silent_after_ms: longest silence of a living node.
        forget_after_ms: silence after which a node is not even listed.
    """

    def __init__(self, *, started_ms: int, silent_after_ms: int, forget_after_ms: int) -> None:
        self._started_ms = started_ms
        self._silent_after_ms = silent_after_ms
        self._forget_after_ms = forget_after_ms
        self._seen: dict[tuple[Role, str], _Sighting] = {}

    def saw(self, role: Role, node: str, now_ms: int) -> None:
        """Any call is a sign of life."""
        self._sighting(role, node, now_ms)

    def beat(self, heartbeat: Heartbeat, now_ms: int) -> None:
        sighting = self._sighting(heartbeat.role, heartbeat.node, now_ms)
        sighting.heartbeat = heartbeat
        sighting.policy_version = heartbeat.policy_version

    def loaded(self, node: str, policy_version: int, now_ms: int) -> None:
        """A worker asked for a lease of the version that it has loaded."""
        self._sighting(Role.WORKER, node, now_ms).policy_version = policy_version

    def alive_workers(self, now_ms: int) -> dict[str, int]:
        """Worker -> loaded version."""
        return {node: sighting.policy_version for node, sighting in self._alive(Role.WORKER, now_ms)}

    def alive_validators(self, now_ms: int) -> set[str]:
        return {node for node, _ in self._alive(Role.VALIDATOR, now_ms)}

    def heartbeat_of(self, role: Role, node: str) -> Heartbeat | None:
        """What a node last said of itself."""
        sighting = self._seen.get((role, node))
        return None if sighting is None else sighting.heartbeat

    def silent(self, role: Role, nodes: Iterable[str], now_ms: int) -> set[str]:
        """Those of `nodes` that were not heard of for too long."""
        return {node for node in nodes if now_ms - self._last_seen_ms(role, node) > self._silent_after_ms}

    def statuses(self, now_ms: int) -> tuple[tuple[NodeStatus, ...], int]:
        """Nodes that told their state, by role and name, and how many more there are than a status may list.

        Trainers and validators, who have shown who they are, come before workers, and the living before the dead.
        """
        told = [(key, sighting, sighting.heartbeat) for key, sighting in self._seen.items() if sighting.heartbeat]
        told.sort(key=lambda item: (item[0][0] is Role.WORKER, not self._is_alive(item[1], now_ms)))
        listed = sorted(told[:MAX_LISTED], key=lambda item: item[0])
        statuses = tuple(
            NodeStatus(
                heartbeat=heartbeat,
                last_seen_ms=sighting.last_seen_ms,
                is_alive=self._is_alive(sighting, now_ms),
            )
            for _, sighting, heartbeat in listed
        )
        return statuses, len(told) - len(listed)

    def excuse(self, pause_ms: int) -> None:
        """Nobody could be heard for so long, because this process stood still: it counts against no node."""
        self._started_ms += pause_ms
        for sighting in self._seen.values():
            sighting.last_seen_ms += pause_ms

    def forget_dead(self, now_ms: int) -> None:
        dead = [key for key, found in self._seen.items() if now_ms - found.last_seen_ms > self._forget_after_ms]
        self._drop(dead)

    def _alive(self, role: Role, now_ms: int) -> list[tuple[str, _Sighting]]:
        return [
            (node, sighting)
            for (its_role, node), sighting in self._seen.items()
            if its_role is role and self._is_alive(sighting, now_ms)
        ]

    def _is_alive(self, sighting: _Sighting, now_ms: int) -> bool:
        return now_ms - sighting.last_seen_ms <= self._silent_after_ms

    def _last_seen_ms(self, role: Role, node: str) -> int:
        sighting = self._seen.get((role, node))
        return self._started_ms if sighting is None else sighting.last_seen_ms

    def _sighting(self, role: Role, node: str, now_ms: int) -> _Sighting:
        sighting = self._seen.get((role, node))
        if sighting is None:
            if len(self._seen) >= MAX_NODES:
                self._drop([min(self._seen, key=lambda key: self._seen[key].last_seen_ms)])
            sighting = self._seen[role, node] = _Sighting(now_ms)
        sighting.last_seen_ms = now_ms
        return sighting

    def _drop(self, keys: Collection[tuple[Role, str]]) -> None:
        for key in keys:
            del self._seen[key]
