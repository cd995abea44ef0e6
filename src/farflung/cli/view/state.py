"""Figures to show, folded from the metrics of the run and the pool's status.

Rates and idle shares are over the last seconds, not since the start, so that a stall is seen when it happens.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from farflung.cli.view import words
from farflung.cli.view.plot import Point
from farflung.slots.tally import WITHOUT_GRADIENT
from farflung.telemetry import metrics
from farflung.wire.node import Heartbeat, NodeStatus, PoolStatus

RECENT_S = 15.0
"""Window of rates and idle shares."""
RECENT_VERSIONS = 20
"""Window of the mean staleness and of the time per version."""
HEALTH = (
    "entropy",
    "grad_norm",
    "mismatch_kl/mean",
    "completions/mean_length",
    "completions/clipped_ratio",
    "clip_ratio/region_mean",
)
"""What shows that a run goes astray before its reward does."""
MAX_NOTES = 4
MAX_NOTE_CHARS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFigures:
    """One process."""

    name: str
    role: str
    activity: str
    idle_share: float | None
    """Of the last seconds; None before there are two signs of life."""
    tokens_per_s: float | None
    """Over the last seconds, waiting included."""
    policy_version: int
    is_alive: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Everything that a screen or a line shows."""

    name: str
    environment: str
    elapsed_s: float
    left_s: float | None
    version: int
    """Newest published; -1 before the first."""
    max_versions: int
    warm_start: Mapping[str, Any] | None
    """Newest row of the supervised steps before the first version."""
    reward: tuple[Point, ...]
    """(version, mean reward of its batch)."""
    accuracy: tuple[Point, ...]
    """(version, share of held-out tasks solved)."""
    loss: float | None
    health: Mapping[str, float]
    """Mean over the last versions of those of `HEALTH` that the trainer tells."""
    staleness_mean: float | None
    staleness_max: int | None
    staleness_counts: tuple[int, ...]
    """Rollouts trained on by staleness 0, 1, ..., `max_staleness`."""
    max_staleness: int
    nodes: tuple[NodeFigures, ...]
    tokens_per_s: float | None
    """Sampled by all workers."""
    tokens_generated: int
    tokens_accepted: int
    tokens_trained: int
    drops: Mapping[str, int]
    notes: tuple[str, ...]
    """What happened last: crashes, restarts."""
    is_reachable: bool
    """Whether the coordinator answers."""
    was_reached: bool
    """Whether it ever did: one that is starting is no cause for worry."""
    is_finished: bool


@dataclass(kw_only=True)
class RunState:
    """Takes rows, statuses and notes as they come; `figures` says what they amount to."""

    name: str
    environment: str
    max_versions: int
    max_staleness: int
    started_s: float
    """When this session began, on the clock of `figures(now_s)`."""
    _train: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _evals: dict[int, float] = field(default_factory=dict)
    _warm_start: Mapping[str, Any] | None = None
    _statuses: deque[tuple[float, PoolStatus]] = field(default_factory=deque)
    _is_reachable: bool = False
    _notes: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_NOTES))

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows of metrics.jsonl; of several for one version the last counts."""
        for row in rows:
            match row["kind"], row.get("version"):
                case "train", int(version):
                    self._train[version] = row
                case "eval", int(version) if row.get("accuracy") is not None:
                    self._evals[version] = float(row["accuracy"])
                case metrics.STEPPED_BACK, int(version):
                    self._train = {made: figures for made, figures in self._train.items() if made <= version}
                    self._evals = {made: accuracy for made, accuracy in self._evals.items() if made <= version}
                case "warm_start", _:
                    self._warm_start = row

    def add_status(self, status: PoolStatus | None, now_s: float) -> None:
        """An answer of the coordinator at `now_s`, or None if there was none."""
        self._is_reachable = status is not None
        if status is None:
            return
        self._statuses.append((now_s, status))
        while len(self._statuses) > 2 and self._statuses[1][0] <= now_s - RECENT_S:
            self._statuses.popleft()

    def add_note(self, text: str) -> None:
        self._notes.append(words.plain(text, MAX_NOTE_CHARS))

    @property
    def status(self) -> PoolStatus | None:
        """The newest answer."""
        return self._statuses[-1][1] if self._statuses else None

    def figures(self, now_s: float) -> Figures:
        rows = [self._train[version] for version in sorted(self._train)]
        recent = rows[-RECENT_VERSIONS:]
        status = self.status
        published = status.policy_version if status else -1
        version = max(published, max(self._train, default=-1), max(self._evals, default=-1))
        nodes = self._nodes()
        worker_rates = [node.tokens_per_s for node in nodes if node.role == "worker" and node.tokens_per_s is not None]
        return Figures(
            name=self.name,
            environment=self.environment,
            elapsed_s=now_s - self.started_s,
            left_s=_left_s(recent, self.max_versions - version),
            version=version,
            max_versions=self.max_versions,
            warm_start=self._warm_start,
            reward=_series(rows, "reward/mean"),
            accuracy=tuple(sorted((float(version), accuracy) for version, accuracy in self._evals.items())),
            loss=_last(recent, "policy_loss"),
            health={name: mean for name in HEALTH if (mean := _mean(recent, name)) is not None},
            staleness_mean=_mean(recent, "staleness/mean"),
            staleness_max=_max(rows, "staleness/max"),
            staleness_counts=_staleness_counts(rows, self.max_staleness),
            max_staleness=self.max_staleness,
            nodes=nodes,
            tokens_per_s=sum(worker_rates) if worker_rates else None,
            tokens_generated=status.tokens_generated if status else 0,
            tokens_accepted=status.tokens_accepted if status else 0,
            tokens_trained=sum(int(row.get("num_tokens") or 0) for row in rows),
            drops=merged_drops(status.drops if status else {}, rows),
            notes=tuple(self._notes),
            is_reachable=self._is_reachable,
            was_reached=bool(self._statuses),
            is_finished=status.is_finished if status else False,
        )

    def _nodes(self) -> tuple[NodeFigures, ...]:
        if not self._statuses:
            return ()
        before = {node.heartbeat.node: node.heartbeat for node in self._statuses[0][1].nodes}
        after_s, before_s = self._statuses[-1][0], self._statuses[0][0]
        nodes = self._statuses[-1][1].nodes
        figures = (_node_figures(node, before.get(node.heartbeat.node), after_s - before_s) for node in nodes)
        return tuple(sorted(figures, key=lambda node: (_ROLE_ORDER.get(node.role, 9), node.name)))


_ROLE_ORDER = {"coordinator": 0, "trainer": 1, "worker": 2, "validator": 3}


def merged_drops(pool: Mapping[str, int], rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Reason -> groups by whoever has seen more: the pool of how slots ended, the trainer of what it left out itself.

    What the pool sums up as `WITHOUT_GRADIENT` the trainer tells apart. Most frequent first.
    """
    trainer: Mapping[str, int] = {}
    for row in rows:
        trainer = row.get("drops") or trainer
    reasons = (pool.keys() | trainer.keys()) - ({WITHOUT_GRADIENT} if trainer else set())
    merged = {reason: max(pool.get(reason, 0), trainer.get(reason, 0)) for reason in reasons}
    shown = ((words.plain(reason), number) for reason, number in merged.items() if number)
    return dict(sorted(shown, key=lambda item: (-item[1], item[0])))


def _node_figures(node: NodeStatus, before: Heartbeat | None, window_s: float) -> NodeFigures:
    now = node.heartbeat
    idle_share = tokens_per_s = None
    if before is not None and window_s > 0 and _is_same_life(before, now):
        busy_s, idle_s = now.busy_s - before.busy_s, now.idle_s - before.idle_s
        idle_share = idle_s / (busy_s + idle_s) if busy_s + idle_s > 0 else None
        tokens_per_s = (now.tokens - before.tokens) / window_s
    return NodeFigures(
        name=words.plain(now.node),
        role=now.role.value,
        activity=words.plain(now.activity),
        idle_share=idle_share,
        tokens_per_s=tokens_per_s,
        policy_version=now.policy_version,
        is_alive=node.is_alive,
    )


def _is_same_life(before: Heartbeat, now: Heartbeat) -> bool:
    """None of these ever falls while a process lives; one that has started again counts from 0."""
    return now.busy_s >= before.busy_s and now.idle_s >= before.idle_s and now.tokens >= before.tokens


def _series(rows: Iterable[Mapping[str, Any]], name: str) -> tuple[Point, ...]:
    return tuple((float(row["version"]), float(row[name])) for row in rows if row.get(name) is not None)


def _last(rows: list[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return float(values[-1]) if values else None


def _mean(rows: list[Mapping[str, Any]], name: str) -> float | None:
    values = [float(row[name]) for row in rows if row.get(name) is not None]
    return sum(values) / len(values) if values else None


def _max(rows: list[Mapping[str, Any]], name: str) -> int | None:
    values = [int(row[name]) for row in rows if row.get(name) is not None]
    return max(values, default=None)


def _staleness_counts(rows: list[Mapping[str, Any]], max_staleness: int) -> tuple[int, ...]:
    counts = [0] * (max_staleness + 1)
    for row in rows:
        for staleness, count in (row.get("staleness/histogram") or {}).items():
            counts[min(max_staleness, int(staleness))] += int(count)
    return tuple(counts)


def _left_s(recent: list[Mapping[str, Any]], num_left: int) -> float | None:
    """Time per version lately, times the versions left."""
    if len(recent) < 3:
        return None
    spread_s = float(recent[-1]["time_s"]) - float(recent[0]["time_s"])
    return max(0.0, spread_s / (len(recent) - 1) * num_left)
