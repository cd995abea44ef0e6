"""Deterministic mode: whoever works, is lost or lies, a slot has the same version and draws, and ends accepted."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.slots import events
from farflung.slots.deterministic import secret_of, slots_per_batch, version_for
from farflung.slots.events import Event
from farflung.slots.grants import choose_grant, due_events
from farflung.slots.leases import write_lease
from farflung.slots.ledger import Ledger
from farflung.wire.batch import BatchItem, BatchRecord
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import Outcome, RejectReason, SlotState, Verdict

NODES = ("a", "b", "c")
NOT_ACCEPTED = [
    (Outcome.REJECTED, RejectReason.SCHEMA),
    (Outcome.EXPIRED, RejectReason.VERSION_WINDOW),
    (Outcome.UNJUDGED, RejectReason.FILE_MISSING),
]


def hashed(text: str) -> str:
    return sha256_hex(text.encode())


def rules(**changes: Any) -> PoolSpec:
    values = {
        "name": "test",
        "environment": EnvironmentSpec(name="sort-digits", num_tasks=10),
        "tokenizer_digest": hashed("t"),
        "model_config_digest": hashed("m"),
        "group_size": 2,
        "groups_per_slot": 2,
        "groups_per_batch": 4,
        "max_staleness": 1,
        "max_outstanding_groups": 8,
        "temperature": 1.0,
        "max_prompt_tokens": 16,
        "max_completion_tokens": 16,
        "lease_s": 10.0,
        "max_attempts": 1,
        "max_file_bytes": 1 << 20,
        "deterministic_seed": 5,
    }
    return PoolSpec(**(values | changes))


class Pool:
    """A ledger with what a coordinator does around it; every lease that was ever written is kept."""

    def __init__(self, spec: PoolSpec) -> None:
        self.rules, self.ledger, self.log = spec, Ledger(spec), list[Event]()
        self.secret = secret_of(spec.deterministic_seed or 0)
        self.leases: list[Lease] = []
        self.now_ms = 0
        self.publish()

    @property
    def table(self) -> Any:
        return self.ledger.table

    def apply(self, event: Event) -> None:
        self.ledger.apply(event)
        self.ledger.validate()
        self.log.append(event)

    def lease(self, node: str) -> Lease | None:
        grant = choose_grant(self.table, node=node, policy_version=0, alive_workers=NODES, now_ms=self.now_ms)
        if grant is None:
            return None
        version = self.table.version_of(grant.slot)
        request = LeaseRequest(node=node, policy_version=version, policy_digest=self.table.versions[version])
        written = write_lease(self.rules, self.rules.digest(), self.secret, request, grant, now_ms=self.now_ms)
        self.apply(events.LeaseGranted(lease=written))
        self.leases.append(written)
        return written

    def submit(self, node: str) -> None:
        held = self.table.leased_to(node).lease
        made = Submission(
            pool_digest=held.pool_digest,
            node=held.node,
            lease_id=held.lease_id,
            slot=held.slot,
            attempt=held.attempt,
            policy_version=held.policy_version,
            policy_digest=held.policy_digest,
            file_key="k",
            file_digest=hashed(held.lease_id),
            file_bytes=1,
            num_rollouts=4,
            num_tokens=7,
        )
        receipt = Receipt(
            submission_digest=made.digest(), sequence=len(self.log), epoch=0, received_at_ms=0, deadline_ms=0
        )
        self.apply(events.Submitted(submission=made, receipt=receipt))

    def judge(self, slot: Any, outcome: Outcome = Outcome.ACCEPTED, reason: RejectReason | None = None) -> None:
        verdict = Verdict(
            pool_digest=self.rules.digest(),
            submission_digest=slot.submission.digest(),
            validator="v",
            outcome=outcome,
            reason=reason,
            evidence_digest=hashed("e"),
            judged_at_ms=self.now_ms,
        )
        self.apply(events.VerdictRecorded(slot=slot.slot, verdict=verdict))

    def sweep(self, silent: set[str]) -> None:
        for event in due_events(
            self.table, silent_nodes=silent, loaded_versions={}, max_judgings=1, now_ms=self.now_ms
        ):
            self.apply(event)

    def publish(self) -> bool:
        """Train on the newest version's own slots, if all are there."""
        version = self.table.newest + 1
        size = slots_per_batch(self.rules)
        numbers = range((version - 1) * size, version * size) if version else range(0)
        slots = [self.table.slot(number) for number in numbers]
        if not all(slot is not None and slot.is_ready for slot in slots):
            return False
        items = tuple(
            BatchItem(
                slot=slot.slot,
                submission_digest=slot.submission.digest(),
                file_digest=slot.submission.file_digest,
                policy_version=slot.policy_version,
                groups_trained=(0,),
            )
            for slot in slots
        )
        record = BatchRecord(
            pool_digest=self.rules.digest(), policy_version=version, optimizer_step=version, items=items
        )
        self.apply(events.BatchRecorded(batch=record))
        self.apply(events.VersionPublished(policy_version=version, policy_digest=hashed(f"policy {version}")))
        return True

    def anything(self, dice: random.Random) -> None:
        """One thing of all that may happen."""
        node = dice.choice(NODES)
        held, waiting = self.table.leased_to(node), self.table.waiting()
        match dice.randrange(8):
            case 0 | 1:
                if held is None:
                    self.lease(node)
            case 2 if held is not None:
                self.submit(node)
            case 3 if held is not None:
                self.apply(events.Forfeited(slot=held.slot, at_ms=self.now_ms, reason=""))
            case 4 if waiting:
                self.judge(dice.choice(waiting))
            case 5 if waiting:
                self.judge(dice.choice(waiting), *dice.choice(NOT_ACCEPTED))
            case 6:
                self.now_ms += dice.choice([0, 5_000, 20_000])
                self.sweep(silent={node} if dice.random() < 0.3 else set())
            case 7:
                if waiting:
                    self.apply(events.JudgingLapsed(slot=dice.choice(waiting).slot, validator="v"))
                self.publish()


@pytest.mark.parametrize(
    ("max_staleness", "versions"), [(0, [0, 0, 1, 1, 2, 2, 3, 3]), (1, [0, 0, 0, 0, 1, 1, 2, 2]), (3, [0] * 8)]
)
def test_the_version_of_a_slot_follows_from_its_number(max_staleness: int, versions: list[int]) -> None:
    spec = rules(max_staleness=max_staleness)
    assert [version_for(spec, slot) for slot in range(8)] == versions


@given(seed=st.integers(0, 10_000), max_staleness=st.integers(0, 2), batches=st.integers(1, 3))
def test_whatever_happens_a_slot_has_one_version_and_one_seed_and_ends_accepted(
    seed: int, max_staleness: int, batches: int
) -> None:
    dice = random.Random(seed)
    pool = Pool(rules(max_staleness=max_staleness, max_outstanding_groups=4 * batches))
    for _ in range(300):
        pool.anything(dice)
    seeds: dict[int, str] = {}
    for lease in pool.leases:
        assert lease.policy_version == version_for(pool.rules, lease.slot)
        assert seeds.setdefault(lease.slot, lease.draw_seed) == lease.draw_seed
    assert set(pool.ledger.tally.final) <= {SlotState.ACCEPTED}
    assert set(pool.ledger.tally.drops) <= {"groups_without_gradient"}, "nothing goes stale"
    replayed = Ledger(pool.rules)
    for event in pool.log:
        replayed.apply(event)
    assert replayed.state == pool.ledger.state


def test_a_slot_that_everybody_loses_or_spoils_is_leased_again_and_again() -> None:
    pool = Pool(rules(max_attempts=1))
    for attempt in range(100):
        node = NODES[attempt % 3]
        pool.now_ms += 20_000  # long enough for one who lost it before
        lease = pool.lease(node)
        assert lease is not None
        assert (lease.slot, lease.attempt) == (0, attempt)
        if attempt % 2:
            pool.submit(node)
            pool.judge(pool.table.slot(0), *NOT_ACCEPTED[attempt % 3])
        else:
            pool.apply(events.LeaseExpired(slot=0, at_ms=pool.now_ms, reason="lease_expired"))
    assert pool.table.slot(0).lost_by == ("b", "c", "a")
    pool.now_ms += 20_000
    pool.lease("a")
    pool.submit("a")
    pool.judge(pool.table.slot(0))
    assert pool.table.slot(0).is_ready


def test_a_submission_that_nobody_can_judge_is_not_set_aside() -> None:
    pool = Pool(rules())
    pool.lease("a")
    pool.submit("a")
    for _ in range(200):
        pool.judge(pool.table.slot(0), Outcome.UNJUDGED, RejectReason.VALIDATOR_FAULT)
    pool.sweep(set())
    assert pool.table.slot(0).state is SlotState.SUBMITTED
    assert len(pool.table.slot(0).failed_validators) == 64, "what is remembered is bounded"
    pool.judge(pool.table.slot(0))
    assert pool.table.slot(0).is_ready


def test_a_vacant_slot_of_an_older_version_is_not_abandoned() -> None:
    pool = Pool(rules(max_staleness=1, max_outstanding_groups=12))
    for node, slot in (("a", 0), ("b", 1), ("c", 2)):
        lease = pool.lease(node)
        assert lease is not None
        assert lease.slot == slot
    for node in ("a", "b"):
        pool.submit(node)
        pool.judge(pool.table.slot(NODES.index(node)))
    pool.apply(events.Forfeited(slot=2, at_ms=0, reason=""))
    assert pool.publish()
    pool.now_ms += 1_000_000
    pool.sweep(set(NODES))
    lease = pool.lease("a")
    assert lease is not None
    assert (lease.slot, lease.policy_version, pool.table.newest) == (2, 0, 1)


def test_the_secret_follows_from_the_seed_alone() -> None:
    assert secret_of(5) == secret_of(5)
    assert secret_of(5) != secret_of(6)
    assert len(secret_of(5)) == 32
