"""An account of time, tokens and drops in `pool.jsonl`, kept by whoever supervises the run.

Roles count from their start and begin at 0 again after a crash, and when a run is continued. Rows are therefore folded
by life, and lives are added up.

    {"time_s": ..., "kind": "node", "session": 1785750000, "node": "worker-1", "role": "worker", "busy_s": 12.5, ...}
    {"time_s": ..., "kind": "pool", "session": 1785750000, "tokens_generated": 412345, "drops": {"stale": 3}, ...}
    {"time_s": ..., "kind": "session", "session": 1785750000, "wall_s": 183.2, "cpu_s": 301.7}
"""

import itertools
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from farflung.telemetry.metrics import MetricsLog
from farflung.wire.node import PoolStatus

EVERY_S = 5.0
"""Between rows of one node."""


@dataclass(kw_only=True)
class UsageLog:
    """Writes the account of one session."""

    metrics: MetricsLog
    own: frozenset[str] = frozenset()
    """Names of the processes on this machine; the CPU seconds of others are not ours."""
    session: int = field(default_factory=lambda: int(time.time()))
    now: Callable[[], float] = time.monotonic
    _started_s: float = field(init=False)
    _next_s: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        self._started_s = self.now()

    def add(self, status: PoolStatus, now_s: float, at_once: bool = False) -> None:
        """Book a status; between two rows at least `EVERY_S` pass, unless `at_once`."""
        if now_s < self._next_s and not at_once:
            return
        self._next_s = now_s + EVERY_S
        for node in status.nodes:
            heartbeat = node.heartbeat
            self.metrics.write(
                "node",
                {
                    "session": self.session,
                    "node": heartbeat.node,
                    "role": heartbeat.role.value,
                    "activity": heartbeat.activity,
                    "busy_s": heartbeat.busy_s,
                    "idle_s": heartbeat.idle_s,
                    "cpu_s": heartbeat.cpu_s,
                    "is_own": heartbeat.node in self.own,
                    "tokens": heartbeat.tokens,
                },
            )
        self.metrics.write(
            "pool",
            {
                "session": self.session,
                "wall_s": now_s - self._started_s,
                "tokens_generated": status.tokens_generated,
                "tokens_accepted": status.tokens_accepted,
                "slots": status.slots,
                "drops": status.drops,
                "grading_faults": status.grading_faults,
            },
            version=status.policy_version,
        )

    def end(self) -> None:
        """Book the session as a whole, after every process of it was waited for."""
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        row = {"session": self.session, "wall_s": self.now() - self._started_s, "cpu_s": cpu_s}
        self.metrics.write("session", row)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeUsage:
    """One process over all its lives."""

    name: str
    role: str
    busy_s: float
    idle_s: float
    cpu_s: float
    tokens: int
    is_own: bool = True
    """Whether it ran on this machine."""

    @property
    def idle_ratio(self) -> float:
        total_s = self.busy_s + self.idle_s
        return self.idle_s / total_s if total_s > 0 else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """A run over all its sessions."""

    nodes: tuple[NodeUsage, ...]
    wall_s: float
    cpu_s: float
    tokens_generated: int
    tokens_accepted: int
    drops: Mapping[str, int]
    grading_faults: Mapping[str, int] = field(default_factory=dict)

    def idle_ratio(self, role: str) -> float | None:
        """Share of waiting of all processes of a role together; None if there were none."""
        nodes = [node for node in self.nodes if node.role == role]
        total_s = sum(node.busy_s + node.idle_s for node in nodes)
        return sum(node.idle_s for node in nodes) / total_s if total_s > 0 else None


def fold(rows: Iterable[Mapping[str, Any]]) -> Usage:
    """The account of a run from the rows of its pool.jsonl, in the order in which they were written."""
    rows = list(rows)
    nodes = [row for row in rows if row["kind"] == "node"]
    pools = [row for row in rows if row["kind"] == "pool"]
    last_pool = pools[-1] if pools else {}
    folded = tuple(_fold_node([row for row in nodes if row["node"] == name]) for name in _names(nodes))
    return Usage(
        nodes=folded,
        wall_s=sum(_by_session(rows, "wall_s").values()),
        cpu_s=_cpu_s(rows, folded),
        tokens_generated=int(last_pool.get("tokens_generated", 0)),
        tokens_accepted=int(last_pool.get("tokens_accepted", 0)),
        drops=dict(last_pool.get("drops", {})),
        grading_faults=dict(last_pool.get("grading_faults", {})),
    )


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({str(row["node"]) for row in rows})


def _fold_node(rows: list[Mapping[str, Any]]) -> NodeUsage:
    """Adds up the last row of each life."""
    ends = [row for row, after in itertools.pairwise(rows) if _is_new_life(row, after)] + rows[-1:]
    return NodeUsage(
        name=rows[0]["node"],
        role=rows[0]["role"],
        busy_s=sum(float(row["busy_s"]) for row in ends),
        idle_s=sum(float(row["idle_s"]) for row in ends),
        cpu_s=sum(float(row["cpu_s"]) for row in ends),
        tokens=sum(int(row["tokens"]) for row in ends),
        is_own=any(row.get("is_own", True) for row in ends),
    )


def _is_new_life(row: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Neither what it worked nor what it waited ever falls while a process lives."""
    return bool(
        row["session"] != after["session"]
        or float(after["busy_s"]) < float(row["busy_s"])
        or float(after["idle_s"]) < float(row["idle_s"])
    )


def _by_session(rows: Iterable[Mapping[str, Any]], name: str) -> dict[int, float]:
    """Largest value of each session: that of its last row."""
    result: dict[int, float] = {}
    for row in rows:
        if name in row and row["kind"] in ("pool", "session"):
            session = int(row["session"])
            result[session] = max(result.get(session, 0.0), float(row[name]))
    return result


def _cpu_s(rows: Iterable[Mapping[str, Any]], nodes: tuple[NodeUsage, ...]) -> float:
    """What the system counted for sessions that ended well; what our roles counted themselves if that is more."""
    return max(sum(_by_session(rows, "cpu_s").values()), sum(node.cpu_s for node in nodes if node.is_own))
