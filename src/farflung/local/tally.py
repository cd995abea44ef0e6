"""What became of the slots of a local run, kept across restarts, and the status that the live view reads."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from farflung.errors import Transient
from farflung.local.messages import Sampled
from farflung.wire.node import Heartbeat, NodeStatus, PoolStatus

logger = logging.getLogger(__name__)

STATUS_FILE = "status.json"
STATUS_EVERY_S = 1.0


class Tally:
    """Counters since the run began, and the last sign of life of each sampler. A `trainer.checkpoint.Component`.

    A snapshot leaves out the slots that wait: they are sampled again after it, and a slot counts once.
    """

    def __init__(self, environment: str, has_ended: Callable[[int], bool]) -> None:
        """
        Args:
            has_ended: whether a slot that was sampled has its final state, which a checkpoint holds.
        """
        self._environment = environment
        self._has_ended = has_ended
        self._may_wait: dict[int, tuple[int, Counter[str]]] = {}
        """Slot -> its tokens and faults."""
        self.tokens = 0
        self.slots: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.heartbeats: dict[str, Heartbeat] = {}

    def sampled(self, answer: Sampled, num_tokens: int) -> None:
        self.tokens += num_tokens
        self.slots["accepted"] += 1
        self.heartbeats[answer.heartbeat.node] = answer.heartbeat
        faults = Counter({f"{self._environment}: {kind}": count for kind, count in answer.faults.items()})
        self.faults += faults
        self._may_wait[answer.slot] = (num_tokens, faults)

    def closed(self, reason: str, num_groups: int) -> None:
        self.slots["forfeited"] += 1
        self.drops[reason] += num_groups

    def snapshot(self) -> dict[str, object]:
        self._may_wait = {slot: share for slot, share in self._may_wait.items() if not self._has_ended(slot)}
        slots, tokens, faults = self.slots.copy(), self.tokens, self.faults.copy()
        for slot_tokens, slot_faults in self._may_wait.values():
            slots["accepted"] -= 1
            tokens -= slot_tokens
            faults -= slot_faults
        return {"tokens": tokens, "slots": dict(slots), "drops": dict(self.drops), "faults": dict(faults)}

    def restore(self, snapshot: dict[str, object]) -> None:
        kept = msgspec.convert(snapshot, _Snapshot)
        self.tokens = kept.tokens
        self.slots, self.drops, self.faults = Counter(kept.slots), Counter(kept.drops), Counter(kept.faults)


class _Snapshot(msgspec.Struct):
    tokens: int
    slots: dict[str, int]
    drops: dict[str, int]
    faults: dict[str, int]


class StatusFile:
    """Written by the run every second, read by whoever watches. Replaced, so that half of one is never seen."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / STATUS_FILE

    def write(self, status: PoolStatus) -> None:
        """Never raises for want of disk: a view that sees nothing stops no run."""
        unfinished = self._path.with_suffix(".tmp")
        try:
            unfinished.write_bytes(status.to_bytes())
            unfinished.replace(self._path)
        except OSError as error:
            logger.warning("nobody sees the run: %s: %s", self._path, error)

    async def status(self) -> PoolStatus:
        """Raises `Transient` while there is none."""
        try:
            return PoolStatus.from_bytes(await asyncio.to_thread(self._path.read_bytes))
        except OSError as error:
            raise Transient(f"{self._path}: {error.strerror or error}") from error


def status_of(
    tally: Tally, trainer: Heartbeat, *, pool: str, outstanding_groups: int, is_finished: bool, now_ms: int
) -> PoolStatus:
    """In the words of a pool's status."""
    nodes = [trainer, *(tally.heartbeats[name] for name in sorted(tally.heartbeats))]
    return PoolStatus(
        pool=pool,
        policy_version=trainer.policy_version,
        nodes=tuple(NodeStatus(heartbeat=node, last_seen_ms=now_ms, is_alive=True) for node in nodes),
        slots=dict(tally.slots),
        drops=dict(tally.drops),
        tokens_generated=tally.tokens,
        tokens_accepted=tally.tokens,
        outstanding_groups=outstanding_groups,
        is_finished=is_finished,
        at_ms=now_ms,
        grading_faults=dict(tally.faults),
    )
