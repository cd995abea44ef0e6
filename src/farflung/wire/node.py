"""Signs of life and the coordinator's picture of the pool."""

import re
from enum import StrEnum
from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_finite, require_names
from farflung.wire.relay import RelayStatus

ACTIVITY = re.compile(r"[A-Za-z0-9 ,.'-]{0,80}")
"""Ends up in terminals of others: no control characters, no markup."""
ALARM = re.compile(r"[a-z_]{0,40}")
MAX_TIME_OR_RATE = 1e10
"""Seconds, or tokens per second: three centuries, or more than any machine. Keeps totals over many nodes finite."""

MAX_LISTED = 256
"""Nodes in one status: its size must not grow with the names that strangers make up."""


class Role(StrEnum):
    COORDINATOR = "coordinator"
    TRAINER = "trainer"
    WORKER = "worker"
    VALIDATOR = "validator"
    RELAY = "relay"


class Heartbeat(Record, frozen=True, kw_only=True):
    """What a role says of itself, every few seconds."""

    DOMAIN: ClassVar[str] = "farflung/heartbeat/1"
    MAX_BYTES: ClassVar[int] = 4096

    node: str
    role: Role
    policy_version: int
    activity: str
    """What it does now: "sampling", "training", or "waiting for <whom>"."""
    busy_s: float
    """Seconds spent working since start."""
    idle_s: float
    """Seconds spent waiting for others since start."""
    cpu_s: float
    """CPU seconds of the process since start."""
    tokens: int = 0
    """Completion tokens sampled (worker), judged (validator) or trained on (trainer) since start."""
    tokens_per_s: float = 0.0
    """Recent rate while busy."""
    alarm: str = ""
    """Why what it was told of versions is not to be believed, such as "split_view"; empty = nothing is wrong."""
    capability_class: str = ""
    """Class of the newest lease of a worker (`PoolSpec.capability_classes`); empty = the pool has no classes."""

    def __post_init__(self) -> None:
        require_names(node=self.node)
        if self.capability_class:
            require_names(capability_class=self.capability_class)
        require_counts(at_least=-1, policy_version=self.policy_version)
        require_counts(tokens=self.tokens)
        times = (self.busy_s, self.idle_s, self.cpu_s, self.tokens_per_s)
        require_finite("times and rates", times)
        if min(times) < 0 or max(times) > MAX_TIME_OR_RATE:
            raise ValueError(f"times and rates are {times}: each must be in [0, {MAX_TIME_OR_RATE:g}]")
        if ACTIVITY.fullmatch(self.activity) is None:
            raise ValueError(f"activity is {self.activity!r}: it must be a few plain words")
        if ALARM.fullmatch(self.alarm) is None:
            raise ValueError(f"alarm is {self.alarm!r}: it must be a reason such as split_view")


class NodeStatus(Record, frozen=True, kw_only=True):
    heartbeat: Heartbeat
    last_seen_ms: int
    is_alive: bool


class PoolStatus(Record, frozen=True, kw_only=True):
    """What `GET /v1/status` answers; everything that a terminal view needs."""

    MAX_BYTES: ClassVar[int] = 4 << 20

    pool: str
    policy_version: int
    """Newest published; -1 before the first."""
    nodes: tuple[NodeStatus, ...]
    slots: dict[str, int]
    """`SlotState` -> number of slots since the run began."""
    drops: dict[str, int]
    """Reason -> number of groups that were not trained on."""
    tokens_generated: int
    tokens_accepted: int
    outstanding_groups: int
    is_finished: bool
    at_ms: int = 0
    """The pool's time of this answer, which `last_seen_ms` is to be compared with."""
    num_unlisted: int = 0
    """Nodes that are there beside those in `nodes`, which are at most `MAX_LISTED`."""
    grading_faults: dict[str, int] = {}
    """What went wrong in grading, such as "sort-digits: timeout" -> completions that got no reward for it."""
    faults: dict[str, int] = {}
    """What was recorded against nodes (`wire.panel.FaultKind`) -> times; `farflung audit` says whom."""
    num_files_removed: int = 0
    """Rollout files and bundles of evidence that were old enough to go, since the coordinator started."""
    relays: tuple[RelayStatus, ...] = ()
    """Those that are handed out, and those that are not, with the reason."""
