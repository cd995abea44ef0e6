"""Random lives of a pool: whatever happens, the invariants hold after every event and the log replays to the same."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from farflung.slots import events
from farflung.slots.events import Event
from farflung.slots.grants import choose_grant, due_events
from farflung.slots.leases import write_lease
from farflung.slots.ledger import Ledger
from farflung.slots.lifecycle import IllegalEvent
from farflung.slots.steps import batch_problem
from farflung.wire.batch import BatchItem, BatchRecord, SlotDrop, SlotOutcome
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import LeaseRequest
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import Outcome, RejectReason, SlotState, Verdict

NODES = ("a", "b", "c")
SECRET = bytes(32)
MAX_JUDGINGS = 2
REASONS = {
    Outcome.ACCEPTED: None,
    Outcome.REJECTED: RejectReason.SCHEMA,
    Outcome.EXPIRED: RejectReason.VERSION_WINDOW,
    Outcome.UNJUDGED: RejectReason.VALIDATOR_FAULT,
}


def hashed(text: str) -> str:
    return sha256_hex(text.encode())


def spec_of(max_staleness: int, batches: int, max_attempts: int) -> PoolSpec:
    return PoolSpec(
        name="test",
        environment=EnvironmentSpec(name="sort-digits", num_tasks=10),
        tokenizer_digest=hashed("t"),
        model_config_digest=hashed("m"),
        group_size=2,
        groups_per_slot=2,
        groups_per_batch=4,
        max_staleness=max_staleness,
        max_outstanding_groups=4 * batches + (1 if batches > 1 else 0),
        temperature=1.0,
        max_prompt_tokens=16,
        max_completion_tokens=16,
        lease_s=10.0,
        max_attempts=max_attempts,
        max_file_bytes=1 << 20,
    )


def submission_for(lease: Any) -> Submission:
    return Submission(
        pool_digest=lease.pool_digest,
        node=lease.node,
        lease_id=lease.lease_id,
        slot=lease.slot,
        attempt=lease.attempt,
        policy_version=lease.policy_version,
        policy_digest=lease.policy_digest,
        file_key="k",
        file_digest=hashed(lease.lease_id),
        file_bytes=1,
        num_rollouts=4,
        num_tokens=7,
    )


class PoolLife(RuleBasedStateMachine):
    @initialize(max_staleness=st.integers(0, 2), batches=st.integers(1, 3), max_attempts=st.integers(1, 3))
    def open_pool(self, max_staleness: int, batches: int, max_attempts: int) -> None:
        self.rules = spec_of(max_staleness, batches, max_attempts)
        self.digest = self.rules.digest()
        self.ledger = Ledger(self.rules)
        self.log: list[Event] = []
        self.now_ms = 0
        self.loaded = dict.fromkeys(NODES, 0)
        self.ends: dict[int, SlotState] = {}
        self.trained: set[int] = set()
        self.apply(events.VersionPublished(policy_version=0, policy_digest=hashed("p0")))

    def apply(self, event: Event) -> None:
        self.ledger.apply(event)
        self.log.append(event)

    @rule(node=st.sampled_from(NODES), updates=st.booleans())
    def ask_for_a_lease(self, node: str, updates: bool) -> None:
        if self.ledger.table.leased_to(node) is not None:
            return
        if updates:
            self.loaded[node] = self.ledger.table.newest
        version = self.loaded[node]
        grant = choose_grant(
            self.ledger.table, node=node, policy_version=version, alive_workers=NODES, now_ms=self.now_ms
        )
        if grant is None:
            return
        leased_before = {slot.slot for slot in self.ledger.table.leased()}
        assert grant.slot not in leased_before
        request = LeaseRequest(node=node, policy_version=version, policy_digest=hashed(f"p{version}"))
        lease = write_lease(self.rules, self.digest, SECRET, request, grant, now_ms=self.now_ms)
        self.apply(events.LeaseGranted(lease=lease))

    @rule(node=st.sampled_from(NODES))
    def hand_in(self, node: str) -> None:
        slot = self.ledger.table.leased_to(node)
        if slot is not None:
            made = submission_for(slot.lease)
            receipt = Receipt(
                submission_digest=made.digest(), sequence=len(self.log), epoch=0, received_at_ms=0, deadline_ms=0
            )
            self.apply(events.Submitted(submission=made, receipt=receipt))

    @rule(node=st.sampled_from(NODES))
    def give_back(self, node: str) -> None:
        slot = self.ledger.table.leased_to(node)
        if slot is not None:
            self.apply(events.Forfeited(slot=slot.slot, at_ms=self.now_ms, reason=""))

    @rule(outcome=st.sampled_from(Outcome), pick=st.integers(0, 10))
    def judge(self, outcome: Outcome, pick: int) -> None:
        waiting = self.ledger.table.waiting()
        if waiting:
            slot = waiting[pick % len(waiting)]
            assert slot.submission is not None
            verdict = Verdict(
                pool_digest=self.digest,
                submission_digest=slot.submission.digest(),
                validator="v",
                outcome=outcome,
                reason=REASONS[outcome],
                evidence_digest=hashed("e"),
                judged_at_ms=self.now_ms,
            )
            self.apply(events.VerdictRecorded(slot=slot.slot, verdict=verdict))

    @rule(pick=st.integers(0, 10))
    def lose_a_validator(self, pick: int) -> None:
        waiting = self.ledger.table.waiting()
        if waiting:
            self.apply(events.JudgingLapsed(slot=waiting[pick % len(waiting)].slot, validator="v"))

    @rule(elapsed_ms=st.integers(0, 12_000), silent=st.sets(st.sampled_from(NODES)))
    def let_time_pass(self, elapsed_ms: int, silent: set[str]) -> None:
        self.now_ms += elapsed_ms
        loaded = {node: version for node, version in self.loaded.items() if node not in silent}
        for event in due_events(
            self.ledger.table,
            silent_nodes=silent,
            loaded_versions=loaded,
            max_judgings=MAX_JUDGINGS,
            now_ms=self.now_ms,
        ):
            self.apply(event)

    @rule(take=st.integers(0, 3), drop=st.integers(0, 2))
    def train(self, take: int, drop: int) -> None:
        ready = [found for found in self.ledger.table.outcomes(-1, 100) if found.state is SlotState.ACCEPTED]
        version = self.ledger.table.newest + 1
        batch = self.batch(version, ready[:take], ready[take : take + drop])
        assert batch_problem(self.ledger.table, batch) is None
        assert all(version - 1 - found.policy_version <= self.rules.max_staleness for found in ready)
        self.apply(events.BatchRecorded(batch=batch))
        taken = {found.slot for found in ready[:take]}
        assert not taken & self.trained
        self.trained |= taken
        self.apply(events.VersionPublished(policy_version=version, policy_digest=hashed(f"p{version}")))

    def batch(self, version: int, taken: list[SlotOutcome], dropped: list[SlotOutcome]) -> BatchRecord:
        items = []
        for found in taken:
            assert found.submission is not None
            item = BatchItem(
                slot=found.slot,
                submission_digest=found.submission.digest(),
                file_digest=found.submission.file_digest,
                policy_version=found.policy_version,
                groups_trained=(),
            )
            items.append(item)
        drops = tuple(SlotDrop(slot=found.slot, reason="surplus") for found in dropped)
        return BatchRecord(
            pool_digest=self.digest, policy_version=version, optimizer_step=0, items=tuple(items), drops=drops
        )

    @precondition(lambda self: self.log)
    @rule(pick=st.integers(0, 1000))
    def repeat_an_old_event(self, pick: int) -> None:
        """A second delivery either is refused or (an empty batch, a lapse) is legal; never does it corrupt."""
        event = self.log[pick % len(self.log)]
        before = self.ledger.state
        try:
            self.apply(event)
        except IllegalEvent:
            assert self.ledger.state == before

    @invariant()
    def invariants_hold(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.ledger.validate()
        for slot in self.ledger.table.slots():
            if slot.is_final:
                assert self.ends.setdefault(slot.slot, slot.state) is slot.state

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        replayed = Ledger(self.rules)
        for event in self.log:
            replayed.apply(event)
        assert replayed.state == self.ledger.state
        assert Ledger(self.rules, self.ledger.state).state == self.ledger.state
        self.let_everything_end()

    def let_everything_end(self) -> None:
        """Without any worker, validator or trainer batch, time and versions end every slot: none hangs for ever."""
        self.let_time_pass(100_000, set(NODES))
        for _ in range(self.rules.max_staleness + 1):
            version = self.ledger.table.newest + 1
            self.apply(events.VersionPublished(policy_version=version, policy_digest=hashed(f"p{version}")))
        self.ledger.validate()
        assert self.ledger.table.open_slots() == []
        assert self.ledger.table.outstanding_groups == 0
        assert self.ledger.table.slots() == []
        assert sum(self.ledger.tally.final.values()) == self.ledger.table.next_slot


TestPoolLife = PoolLife.TestCase
TestPoolLife.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
