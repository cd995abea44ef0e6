"""Workers that choose: hard slots left out, leases kept from others, draws tried until they please."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from farflung.slots import events
from farflung.slots.events import Event
from farflung.slots.grants import Grant, choose_grant, due_events
from farflung.slots.leases import write_lease
from farflung.slots.ledger import Ledger
from farflung.slots.lifecycle import IllegalEvent
from farflung.slots.standing import Standings, StandingsState
from farflung.wire.canonical import sha256_hex
from farflung.wire.check_rules import CheckRules
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.panel import Fault, FaultKind
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.proof import DEFAULT_RULES
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import Outcome, SlotState, Verdict

SECRET = b"\x09" * 32
POLICY = sha256_hex(b"policy")
ADDRESS = "0x" + 40 * "1"
RULES = CheckRules(forfeit_allowance=8, forfeit_share=0.1)


def pool(**changes: Any) -> PoolSpec:
    values = {
        "name": "test",
        "trust": "proven",
        "coordinator": ADDRESS,
        "trainer": ADDRESS,
        "proofs": DEFAULT_RULES,
        "checks": RULES,
        "environment": EnvironmentSpec(name="sort-digits", num_tasks=10_000),
        "tokenizer_digest": sha256_hex(b"t"),
        "model_config_digest": sha256_hex(b"m"),
        "group_size": 2,
        "groups_per_slot": 1,
        "groups_per_batch": 4,
        "max_staleness": 1,
        "max_outstanding_groups": 100_000,
        "temperature": 1.0,
        "max_prompt_tokens": 16,
        "max_completion_tokens": 16,
        "lease_s": 10.0,
        "max_attempts": 3,
        "max_file_bytes": 1 << 20,
    }
    return PoolSpec(**(values | changes))


@dataclass
class Course:
    """A pool's ledger with its workers, moved on as a coordinator would."""

    rules: PoolSpec = field(default_factory=pool)
    workers: tuple[str, ...] = ("a", "b", "c")
    now_ms: int = 0
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.rules)
        self.digest = self.rules.digest()
        self.apply(events.VersionPublished(policy_version=0, policy_digest=POLICY))

    def apply(self, event: Event) -> None:
        self.ledger.apply(event)

    def lease(self, node: str) -> Lease:
        grant = choose_grant(
            self.ledger.table, node=node, policy_version=0, alive_workers=self.workers, now_ms=self.now_ms
        )
        assert grant is not None
        request = LeaseRequest(node=node, policy_version=0, policy_digest=POLICY)
        lease = write_lease(self.rules, self.digest, SECRET, request, grant, now_ms=self.now_ms)
        self.apply(events.LeaseGranted(lease=lease))
        return lease

    def forfeit(self, lease: Lease) -> None:
        self.apply(events.Forfeited(slot=lease.slot, at_ms=self.now_ms, reason="out of memory, I swear"))
        standing = self.ledger.standings.of(lease.node)
        if standing.is_over_budget(self.rules.checks):
            kind = FaultKind.TOO_MANY_FORFEITS
            fault = Fault(pool_digest=self.digest, node=lease.node, kind=kind, slot=lease.slot)
            self.apply(events.FaultRecorded(fault=fault, at_ms=self.now_ms))
            self.faults.append(fault)

    def submit(self, lease: Lease) -> Submission:
        submission = Submission(
            pool_digest=self.digest,
            node=lease.node,
            lease_id=lease.lease_id,
            slot=lease.slot,
            attempt=lease.attempt,
            policy_version=0,
            policy_digest=POLICY,
            file_key="k",
            file_digest=sha256_hex(lease.lease_id.encode()),
            file_bytes=1,
            num_rollouts=2,
            num_tokens=7,
        )
        receipt = Receipt(submission_digest=submission.digest(), sequence=0, epoch=0, received_at_ms=0, deadline_ms=0)
        self.apply(events.Submitted(submission=submission, receipt=receipt))
        return submission

    def accept(self, submission: Submission) -> None:
        verdict = Verdict(
            pool_digest=self.digest,
            submission_digest=submission.digest(),
            validator="v",
            outcome=Outcome.ACCEPTED,
            evidence_digest=sha256_hex(b"e"),
            judged_at_ms=0,
        )
        self.apply(events.VerdictRecorded(slot=submission.slot, verdict=verdict))

    def work(self, lease: Lease) -> None:
        self.accept(self.submit(lease))

    def sweep(self) -> None:
        loaded = dict.fromkeys(self.workers, 0)
        due = due_events(self.ledger.table, silent_nodes=(), loaded_versions=loaded, max_judgings=3, now_ms=self.now_ms)
        for event in due:
            self.apply(event)


def test_w9_who_skips_every_hard_slot_is_named_and_no_slot_goes_missing() -> None:
    """Slots come one after another whatever anybody wishes; each that is given back is seen, counted and leased on."""
    course, num_leases = Course(), 0
    while not course.faults:
        num_leases += 1
        lease = course.lease("a")
        if lease.task_indices[0] % 2:  # "hard"
            course.forfeit(lease)
            course.work(course.lease("b"))
        else:
            course.work(lease)
        assert num_leases <= 40, "half of its leases are lost: 0.5 n > 8 + 0.1 n from n = 20 on"
    assert {fault.node for fault in course.faults} == {"a"}
    course.ledger.validate()
    accepted = {outcome.slot for outcome in course.ledger.table.outcomes(-1, 10_000)}
    assert accepted == set(range(course.ledger.table.next_slot)), "every slot has ended, in somebody's hands"


@pytest.mark.parametrize("phase", ["leased", "uploaded", "submitted"])
def test_w30_one_of_three_vanishes_and_the_others_are_paid(phase: str) -> None:
    """Its slot goes to another node with other draws, or is judged without it."""
    course = Course()
    vanishing, peers = course.lease("a"), [course.lease("b"), course.lease("c")]
    submission = course.submit(vanishing) if phase == "submitted" else None
    for lease in peers:
        course.work(lease)
    assert [course.ledger.table.slot(lease.slot).state for lease in peers] == [SlotState.ACCEPTED] * 2  # type: ignore[union-attr]
    if submission is not None:
        course.accept(submission)
    else:
        course.now_ms = vanishing.expires_at_ms
        course.workers = ("b", "c")
        course.sweep()
        again = course.lease("b")
        assert (again.slot, again.attempt, again.task_indices) == (vanishing.slot, 1, vanishing.task_indices)
        assert again.draw_seed != vanishing.draw_seed
        course.work(again)
    course.ledger.validate()
    assert {outcome.state for outcome in course.ledger.table.outcomes(-1, 100)} == {SlotState.ACCEPTED}


def leases_until_named(rng: np.random.Generator, share_lost: float, most: int) -> int | None:
    """Of a worker that loses this share of its leases at random."""
    standings = Standings(StandingsState())
    for number in range(1, most + 1):
        standings.leased("a")
        if rng.random() < share_lost:
            standings.lost("a")
        if standings.of("a").is_over_budget(RULES):
            return number
    return None


def test_w33_who_hands_in_only_what_lies_above_the_median_is_named_within_sixty_slots() -> None:
    """Best of N across slots: it runs each, looks, and gives back the worse half."""
    rng = np.random.default_rng(33)
    named = [leases_until_named(rng, 0.5, 1000) for _ in range(1000)]
    numbers = [number for number in named if number is not None]
    assert len(numbers) == 1000
    assert max(numbers) <= 60
    assert np.median(numbers) <= 25


def test_w33_honest_churn_is_not_named() -> None:
    """The adjacent honest twin: a machine that loses three of a hundred leases, for a thousand of them."""
    rng = np.random.default_rng(34)
    assert [leases_until_named(rng, 0.03, 1000) for _ in range(500)] == [None] * 500


def test_w33_a_disliked_slot_does_not_come_back_with_other_draws() -> None:
    """Nor after everybody has gone, nor after a wait; and the auditor sees who gives it."""
    course = Course(workers=("a", "b"))
    disliked = course.lease("a")
    course.forfeit(disliked)
    for workers, now_ms in ((("a", "b"), 0), (("a", "b"), 10**9), (("a",), 10**9)):
        course.workers, course.now_ms = workers, now_ms
        grant = choose_grant(
            course.ledger.table, node="a", policy_version=0, alive_workers=workers, now_ms=course.now_ms
        )
        assert grant is not None
        assert grant.slot != disliked.slot
    request = LeaseRequest(node="a", policy_version=0, policy_digest=POLICY)
    favour = write_lease(course.rules, course.digest, SECRET, request, Grant(slot=disliked.slot, attempt=1), now_ms=0)
    with pytest.raises(IllegalEvent, match="other draws"):
        course.apply(events.LeaseGranted(lease=favour))
    course.workers = ("a",)
    course.sweep()
    slot = course.ledger.table.slot(disliked.slot)
    assert slot is not None
    assert slot.state is SlotState.FORFEITED, "what nobody may take any more ends, so that nothing waits for it"


def test_w33_letting_a_lease_run_out_counts_as_giving_it_back() -> None:
    course = Course()
    for _ in range(12):
        lease = course.lease("a")
        course.now_ms = lease.expires_at_ms
        course.sweep()
    standing = course.ledger.standings.of("a")
    assert (standing.num_leases, standing.num_lost) == (12, 12)
    assert standing.is_over_budget(RULES)


def test_w33_nobody_is_named_within_the_budget() -> None:
    course = Course()
    fault = Fault(pool_digest=course.digest, node="a", kind=FaultKind.TOO_MANY_FORFEITS, slot=0)
    with pytest.raises(IllegalEvent, match="within its budget"):
        course.apply(events.FaultRecorded(fault=fault, at_ms=0))
