"""A pool in simulated time: the real ledger, leases and buffer, with workers and a trainer that only take time.

    worker     asks for a lease, samples (seconds a token, times its slowness), is late by a drawn delay, hands in
    validator  takes submissions in order of receipt, `verify_s_per_token` each
    trainer    takes a batch as soon as the buffer has one, trains `train_s`; workers have the version `publish_s` later

Nothing sleeps: a heap of events moves the clock, so an hour of a pool is a second here, and the same seed gives the
same history on any machine. It returns a schedule that `lagged` can train along: which slots, sampled by which
versions, made each version. As in a pool, new slots are leased for the newest version only, so a worker that asks while
a version is on its way waits for it. Does not know tasks, tokens or weights.
"""

import hashlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.lagged import SlotUse
from farflung.rl.buffer import BufferParams, ExperienceBuffer
from farflung.rl.types import Batch, RolloutGroup
from farflung.slots import events
from farflung.slots.grants import choose_grant, due_events
from farflung.slots.leases import write_lease
from farflung.slots.ledger import Ledger, SlotForgotten
from farflung.wire.batch import BatchItem, BatchRecord
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import EvidenceBundle, Outcome, SlotState, Verdict

MAX_JUDGINGS = 3
CLASS = "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """How long everything takes, in seconds of simulated time."""

    sample_s_per_token: float
    verify_s_per_token: float
    train_s: float
    """One optimizer step."""
    publish_s: float = 0.0
    """From the end of a step until workers can load its version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimWorker:
    name: str
    slowness: float = 1.0
    """Sampling takes this many times as long."""
    delay_s: Callable[[np.random.Generator], float] = lambda _: 0.0
    """Drawn anew for each slot and added to its sampling."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotFate:
    """How a slot ended."""

    slot: int
    node: str
    """Who sampled it, or lost it last."""
    num_tokens: int
    end: str
    """trained, stale, or the reason for which it was never accepted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What happened until the last version."""

    schedule: tuple[tuple[SlotUse, ...], ...]
    published_s: tuple[float, ...]
    """When each of the versions 1, 2, ... was published."""
    fates: tuple[SlotFate, ...]
    """Of every slot that ended; those still open at the end are left out."""
    trainer_waited_s: float

    @property
    def lags(self) -> list[int]:
        return [version - use.version for version, uses in enumerate(self.schedule) for use in uses]


def lognormal(scale_s: float, sigma: float) -> Callable[[np.random.Generator], float]:
    """Delays with mean `scale_s` and log-standard deviation `sigma`: exp(N(ln scale - sigma^2 / 2, sigma))."""
    if scale_s == 0:
        return lambda _: 0.0
    return lambda generator: float(generator.lognormal(np.log(scale_s) - sigma**2 / 2, sigma))


class PoolSim:
    """One history. `run` once."""

    def __init__(
        self,
        rules: PoolSpec,
        workers: Sequence[SimWorker],
        costs: Costs,
        *,
        seed: int,
        slot_tokens: Callable[[int], int],
        num_validators: int = 1,
        window_slots: int = 8,
        check: bool = False,
    ) -> None:
        """
        Args:
            slot_tokens: completion tokens of slot n, whoever samples it.
            check: assert the ledger's invariants after every event (slow; for tests).
        """
        self.rules, self.costs = rules, costs
        self.ledger = Ledger(rules)
        self.buffer = ExperienceBuffer(
            BufferParams(
                groups_per_batch=rules.groups_per_batch,
                max_staleness=rules.max_staleness,
                max_slots=rules.max_outstanding_groups // rules.groups_per_slot + 1,
                window_slots=window_slots,
            )
        )
        self._workers = {worker.name: worker for worker in workers}
        self._generators = {worker.name: np.random.default_rng([seed, number]) for number, worker in enumerate(workers)}
        self._secret = hashlib.sha256(b"farflung/benchmarks/pool-sim/%d" % seed).digest()
        self._digest = rules.digest()
        self._slot_tokens, self._check = slot_tokens, check
        self._now_s, self._version = 0.0, -1
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._tie, self._receipts = itertools.count(), itertools.count()
        self._idle_workers: deque[str] = deque(self._workers)
        self._loaded: dict[str, int] = {}
        self._available = -1
        self._idle_validators = num_validators
        self._judged_up_to: set[str] = set()
        self._fed, self._first_gap = -1, -1
        self._trainer_is_busy, self._waiting_since_s, self._waited_s = False, 0.0, 0.0
        self._fates: dict[int, SlotFate] = {}
        self._tried_by: dict[int, str] = {}
        self._schedule: list[tuple[SlotUse, ...]] = []
        self._published_s: list[float] = []

    def run(self, num_versions: int) -> History:
        """Until `num_versions` batches have been trained on."""
        self._publish()
        while len(self._published_s) < num_versions:
            if not self._heap:
                raise RuntimeError(f"nothing will ever happen after {self._now_s} s: version {self._version}")
            self._now_s, _, action = heapq.heappop(self._heap)
            action()
            self._settle()
        return History(
            schedule=tuple(self._schedule),
            published_s=tuple(self._published_s),
            fates=tuple(self._fates[slot] for slot in sorted(self._fates)),
            trainer_waited_s=self._waited_s,
        )

    # -- clock ------------------------------------------------------------------------------------------------------

    def _after(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self._now_s + delay_s, next(self._tie), action))

    @property
    def _now_ms(self) -> int:
        return round(self._now_s * 1000)

    def _apply(self, event: events.Event) -> None:
        for instruction in self.ledger.apply(event):
            if isinstance(instruction, SlotForgotten):
                slot = instruction.slot
                self._end(slot.slot, slot.reason or slot.state)
        if self._check:
            self.ledger.validate()

    def _settle(self) -> None:
        """Whatever can happen at this instant, until nothing more can."""
        for event in due_events(
            self.ledger.table,
            silent_nodes=(),
            loaded_versions=self._loaded,
            max_judgings=MAX_JUDGINGS,
            now_ms=self._now_ms,
        ):
            self._apply(event)
        while self._lease() or self._verify() or self._feed() or self._train():
            pass

    # -- workers ----------------------------------------------------------------------------------------------------

    def _lease(self) -> bool:
        granted = False
        for _ in range(len(self._idle_workers)):
            node = self._idle_workers.popleft()
            self._loaded[node] = self._available
            grant = None
            if self._available >= 0:
                grant = choose_grant(
                    self.ledger.table,
                    node=node,
                    policy_version=self._available,
                    alive_workers=self._workers,
                    now_ms=self._now_ms,
                )
            if grant is None:
                self._idle_workers.append(node)
                continue
            request = LeaseRequest(
                node=node,
                policy_version=self._available,
                policy_digest=_policy_digest(self._available),
                capability_class=CLASS,
            )
            lease = write_lease(self.rules, self._digest, self._secret, request, grant, now_ms=self._now_ms)
            self._apply(events.LeaseGranted(lease=lease))
            self._tried_by[lease.slot] = node
            worker = self._workers[node]
            sampling_s = self._slot_tokens(lease.slot) * self.costs.sample_s_per_token * worker.slowness
            self._after(sampling_s + worker.delay_s(self._generators[node]), partial(self._hand_in, lease))
            self._after(self.rules.lease_s, lambda: None)  # so that an expired lease is noticed in time
            granted = True
        return granted

    def _hand_in(self, lease: Lease) -> None:
        self._idle_workers.append(lease.node)
        held = self.ledger.table.leased_to(lease.node)
        if held is None or held.lease.lease_id != lease.lease_id:
            return  # it expired meanwhile
        num_tokens = self._slot_tokens(lease.slot)
        submission = Submission(
            pool_digest=self._digest,
            node=lease.node,
            lease_id=lease.lease_id,
            slot=lease.slot,
            attempt=lease.attempt,
            policy_version=lease.policy_version,
            policy_digest=lease.policy_digest,
            file_key=f"rollouts/{lease.lease_id}",
            file_digest=sha256_hex(lease.lease_id.encode()),
            file_bytes=num_tokens,
            num_rollouts=self.rules.group_size * self.rules.groups_per_slot,
            num_tokens=num_tokens,
        )
        receipt = Receipt(
            submission_digest=submission.digest(),
            sequence=next(self._receipts),
            epoch=0,
            received_at_ms=self._now_ms,
            deadline_ms=self._now_ms + 10**9,
        )
        self._apply(events.Submitted(submission=submission, receipt=receipt))

    # -- validators -------------------------------------------------------------------------------------------------

    def _verify(self) -> bool:
        waiting = [slot for slot in self.ledger.table.waiting() if slot.lease.lease_id not in self._judged_up_to]
        if not waiting or not self._idle_validators:
            return False
        slot = waiting[0]
        self._judged_up_to.add(slot.lease.lease_id)
        self._idle_validators -= 1
        submission = slot.submission
        assert submission is not None
        self._after(submission.num_tokens * self.costs.verify_s_per_token, lambda: self._judge(submission))
        return True

    def _judge(self, submission: Submission) -> None:
        self._idle_validators += 1
        slot = self.ledger.table.slot(submission.slot)
        if slot is None or slot.state is not SlotState.SUBMITTED:
            return  # its version left the window while it was being judged
        evidence = EvidenceBundle(submission_digest=submission.digest(), rewards=())
        verdict = Verdict(
            pool_digest=self._digest,
            submission_digest=submission.digest(),
            validator="validator",
            outcome=Outcome.ACCEPTED,
            evidence_digest=evidence.digest(),
            judged_at_ms=self._now_ms,
        )
        self._apply(events.VerdictRecorded(slot=slot.slot, verdict=verdict))

    # -- trainer ----------------------------------------------------------------------------------------------------

    def _feed(self) -> bool:
        """Final slots go to the buffer, as the trainer's inbox does it."""
        outcomes = self.ledger.table.outcomes(self._fed, 1000)
        for outcome in outcomes:
            self._fed = outcome.sequence
            if outcome.state is not SlotState.ACCEPTED:
                slot = self.ledger.table.slot(outcome.slot)
                assert slot is not None
                self.buffer.close(outcome.slot, slot.reason or slot.state)
                self._end(outcome.slot, slot.reason or slot.state)
                continue
            assert outcome.submission is not None
            admission = self.buffer.admit(
                outcome.slot,
                outcome.policy_version,
                self._groups(outcome.slot, outcome.policy_version),
                outcome.submission.num_tokens,
                outcome.submission.node,
            )
            assert admission.value == "admitted", admission
        return bool(outcomes)

    def _groups(self, slot: int, version: int) -> list[RolloutGroup]:
        """Stand-ins of one token: time does not depend on what was written."""
        rollout = Rollout(
            env="simulated",
            task_id=f"train/{slot}",
            group=0,
            sample=0,
            prompt_tokens=np.zeros(1, np.int32),
            completion_tokens=np.zeros(1, np.int32),
            logprobs=np.zeros(1, np.float32),
            stop_reason=StopReason.EOS,
            policy_version=version,
        )
        return [
            RolloutGroup(
                slot=slot, group=group, task_id=f"{slot}/{group}", rollouts=(rollout,), rewards=(0.0,), correct=(0.0,)
            )
            for group in range(self.rules.groups_per_slot)
        ]

    def _train(self) -> bool:
        if self._trainer_is_busy:
            return False
        batch = self.buffer.take(self._version)
        if batch is None:
            return False
        self._waited_s += self._now_s - self._waiting_since_s
        self._trainer_is_busy = True
        self._after(self.costs.train_s, lambda: self._finish(batch))
        return True

    def _finish(self, batch: Batch) -> None:
        items = []
        for entry in batch.entries:
            slot = self.ledger.table.slot(entry.slot)
            assert slot is not None
            assert slot.submission is not None
            items.append(
                BatchItem(
                    slot=entry.slot,
                    submission_digest=slot.submission.digest(),
                    file_digest=slot.submission.file_digest,
                    policy_version=entry.policy_version,
                    groups_trained=tuple(range(self.rules.groups_per_slot)),
                )
            )
            self._end(entry.slot, "trained")
        for drop in batch.drops:
            self._end(drop.slot, drop.reason)
        record = BatchRecord(
            pool_digest=self._digest,
            policy_version=self._version + 1,
            optimizer_step=self._version + 1,
            items=tuple(items),
            drops=batch.drops,
        )
        self._apply(events.BatchRecorded(batch=record))
        self.buffer.release(batch.batch_id)
        self._schedule.append(tuple(SlotUse(slot=e.slot, version=e.policy_version) for e in batch.entries))
        self._published_s.append(self._now_s)
        self._trainer_is_busy, self._waiting_since_s = False, self._now_s
        self._publish()
        self._close_absent()

    def _publish(self) -> None:
        self._version += 1
        version = self._version
        self._apply(events.VersionPublished(policy_version=version, policy_digest=_policy_digest(version)))
        if self.costs.publish_s:
            self._after(self.costs.publish_s, lambda: self._make_available(version))
        else:
            self._available = version
        self._after(0.0, lambda: None)

    def _close_absent(self) -> None:
        """As the trainer's feed: after a version of waiting for the same slot, look whether it will come at all."""
        has_waited, self._first_gap = self.buffer.cursor == self._first_gap, self.buffer.cursor
        if has_waited:
            table = self.ledger.table
            coming = {*table.open_slots(), *(outcome.slot for outcome in table.outcomes(self._fed, 1000))}
            for slot in range(self.buffer.cursor, table.next_slot):
                if slot not in coming and not self.buffer.has_seen(slot):
                    self.buffer.close(slot, "settled")

    def _make_available(self, version: int) -> None:
        self._available = version

    def _end(self, slot: int, end: str) -> None:
        fate = SlotFate(slot=slot, node=self._tried_by[slot], num_tokens=self._slot_tokens(slot), end=str(end))
        self._fates.setdefault(slot, fate)


def _policy_digest(version: int) -> str:
    return sha256_hex(b"simulated policy %d" % version)
