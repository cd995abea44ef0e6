"""The slot ledger: each transition of the table, capacity, attempts, the window, and illegal events."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from farflung.slots import events
from farflung.slots.events import Event
from farflung.slots.grants import Grant, choose_grant, due_events
from farflung.slots.leases import lease_id, slot_of, write_lease, write_ticket
from farflung.slots.ledger import (
    CapacityFreed,
    Instruction,
    JudgingNeeded,
    Ledger,
    OutcomeReady,
    SlotForgotten,
    VersionRetired,
)
from farflung.slots.lifecycle import TRANSITIONS, IllegalEvent
from farflung.slots.steps import batch_problem
from farflung.wire.batch import BatchItem, BatchRecord, SlotDrop
from farflung.wire.canonical import Record, sha256_hex
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import Outcome, RejectReason, SlotState, Verdict

SECRET = bytes(range(32))


def hashed(text: str) -> str:
    return sha256_hex(text.encode())


def rules(**changes: Any) -> PoolSpec:
    values = {
        "name": "test",
        "environment": EnvironmentSpec(name="sort-digits", num_tasks=100),
        "tokenizer_digest": hashed("t"),
        "model_config_digest": hashed("m"),
        "group_size": 4,
        "groups_per_slot": 2,
        "groups_per_batch": 4,
        "max_staleness": 1,
        "max_outstanding_groups": 8,
        "temperature": 1.0,
        "max_prompt_tokens": 16,
        "max_completion_tokens": 16,
        "lease_s": 10.0,
        "max_attempts": 2,
        "max_file_bytes": 1 << 20,
    }
    return PoolSpec(**(values | changes))


def lease(spec: PoolSpec, node: str, slot: int, attempt: int = 0, version: int = 0, now_ms: int = 0) -> Lease:
    request = LeaseRequest(node=node, policy_version=version, policy_digest=hashed(f"policy-{version}"))
    return write_lease(spec, spec.digest(), SECRET, request, Grant(slot=slot, attempt=attempt), now_ms=now_ms)


def submission(held: Lease, num_tokens: int = 10) -> Submission:
    return Submission(
        pool_digest=held.pool_digest,
        node=held.node,
        lease_id=held.lease_id,
        slot=held.slot,
        attempt=held.attempt,
        policy_version=held.policy_version,
        policy_digest=held.policy_digest,
        file_key=f"rollouts/{held.lease_id}",
        file_digest=hashed(f"file-{held.lease_id}"),
        file_bytes=100,
        num_rollouts=8,
        num_tokens=num_tokens,
    )


def verdict(judged: Submission, outcome: Outcome, reason: RejectReason | None = None, validator: str = "v0") -> Verdict:
    return Verdict(
        pool_digest=judged.pool_digest,
        submission_digest=judged.digest(),
        validator=validator,
        outcome=outcome,
        reason=reason,
        evidence_digest=hashed("e"),
        judged_at_ms=0,
    )


def batch(version: int, items: list[Submission], drops: dict[int, str] | None = None) -> BatchRecord:
    return BatchRecord(
        pool_digest=hashed("p"),
        policy_version=version,
        optimizer_step=version,
        items=tuple(
            BatchItem(
                slot=item.slot,
                submission_digest=item.digest(),
                file_digest=item.file_digest,
                policy_version=item.policy_version,
                groups_trained=(0,),
            )
            for item in items
        ),
        drops=tuple(SlotDrop(slot=slot, reason=reason) for slot, reason in (drops or {}).items()),
    )


class Driver:
    """A ledger that checks its invariants and its replay after every event."""

    def __init__(self, spec: PoolSpec, **limits: int) -> None:
        self.rules = spec
        self.ledger = Ledger(spec, **limits)
        self.log: list[Event] = []

    def apply(self, event: Event) -> list[Instruction]:
        instructions = self.ledger.apply(event)
        self.log.append(event)
        self.ledger.validate()
        return instructions

    def publish(self, version: int) -> list[Instruction]:
        return self.apply(events.VersionPublished(policy_version=version, policy_digest=hashed(f"policy-{version}")))

    def grant(self, node: str, slot: int, attempt: int = 0, version: int = 0) -> Lease:
        held = lease(self.rules, node, slot, attempt, version)
        self.apply(events.LeaseGranted(lease=held))
        return held

    def submit(self, held: Lease) -> Submission:
        made = submission(held)
        self.apply(events.Submitted(submission=made, receipt=self.receipt(made)))
        return made

    def receipt(self, made: Submission) -> Receipt:
        return Receipt(
            submission_digest=made.digest(), sequence=len(self.log), epoch=0, received_at_ms=0, deadline_ms=0
        )

    def judge(self, made: Submission, outcome: Outcome, reason: RejectReason | None = None) -> list[Instruction]:
        return self.apply(events.VerdictRecorded(slot=made.slot, verdict=verdict(made, outcome, reason)))

    def accepted(self, node: str, slot: int, version: int = 0) -> Submission:
        made = self.submit(self.grant(node, slot, version=version))
        self.judge(made, Outcome.ACCEPTED)
        return made

    def state(self, slot: int) -> SlotState:
        found = self.ledger.table.slot(slot)
        assert found is not None
        return found.state


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver(rules())
    driver.publish(0)
    yield driver
    replayed = Ledger(driver.rules)
    for event in driver.log:
        replayed.apply(event)
    assert replayed.state == driver.ledger.state
    restored = Ledger(driver.rules, driver.ledger.state)
    assert restored.state == driver.ledger.state
    restored.validate()


def test_a_slot_is_leased_submitted_judged_and_consumed(driver: Driver) -> None:
    held = driver.grant("a", 0)
    assert driver.state(0) is SlotState.LEASED
    made = submission(held)
    assert driver.apply(events.Submitted(submission=made, receipt=driver.receipt(made))) == [JudgingNeeded()]
    assert driver.state(0) is SlotState.SUBMITTED
    assert driver.judge(made, Outcome.ACCEPTED) == [OutcomeReady()]
    (outcome,) = driver.ledger.table.outcomes(-1, 10)
    assert (outcome.sequence, outcome.slot, outcome.state, outcome.submission) == (0, 0, SlotState.ACCEPTED, made)
    assert driver.apply(events.BatchRecorded(batch=batch(1, [made]))) == [CapacityFreed()]
    assert driver.ledger.table.outcomes(-1, 10) == []
    assert driver.ledger.table.outstanding_groups == 0
    assert driver.ledger.tally.drops == {"groups_without_gradient": 1}
    assert (driver.ledger.tally.tokens_submitted, driver.ledger.tally.tokens_accepted) == (10, 10)


def test_a_rejected_submission_ends_with_its_reason_and_frees_its_room(driver: Driver) -> None:
    made = driver.submit(driver.grant("a", 0))
    assert driver.judge(made, Outcome.REJECTED, RejectReason.SCHEMA) == [CapacityFreed(), OutcomeReady()]
    assert driver.state(0) is SlotState.REJECTED
    assert driver.ledger.tally.drops == {"schema": 2}
    assert driver.ledger.tally.final == {"rejected": 1}
    assert driver.ledger.tally.tokens_accepted == 0


def test_a_node_has_one_open_lease(driver: Driver) -> None:
    held = driver.grant("a", 0)
    with pytest.raises(IllegalEvent, match="one open lease"):
        driver.grant("a", 1)
    driver.submit(held)
    driver.grant("a", 1)


def test_slots_are_numbered_without_gaps_and_belong_to_the_newest_version(driver: Driver) -> None:
    with pytest.raises(IllegalEvent):
        driver.grant("a", 1)
    driver.publish(1)
    with pytest.raises(IllegalEvent):
        driver.grant("a", 0, version=0)
    driver.grant("a", 0, version=1)


def test_a_new_slot_needs_room_for_all_its_groups(driver: Driver) -> None:
    for slot, node in enumerate("abcd"):
        driver.grant(node, slot)
    assert driver.ledger.table.outstanding_groups == 8
    assert not driver.ledger.table.has_capacity
    with pytest.raises(IllegalEvent, match="outstanding"):
        driver.grant("e", 4)


def test_accepted_slots_hold_their_room_until_a_batch_takes_or_drops_them(driver: Driver) -> None:
    made = [driver.accepted(node, slot) for slot, node in enumerate("abcd")]
    assert not driver.ledger.table.has_capacity
    driver.apply(events.BatchRecorded(batch=batch(1, made[:1], {3: "too_few_left"})))
    assert driver.ledger.table.outstanding_groups == 4
    assert driver.ledger.tally.drops["too_few_left"] == 2


def test_a_forfeited_slot_goes_to_another_node_with_the_next_attempt_and_other_draws(driver: Driver) -> None:
    first = driver.grant("a", 0)
    assert driver.apply(events.Forfeited(slot=0, at_ms=5, reason="stopping")) == [CapacityFreed()]
    assert driver.state(0) is SlotState.VACANT
    with pytest.raises(IllegalEvent):
        driver.grant("b", 0, attempt=0)
    second = driver.grant("b", 0, attempt=1)
    assert second.task_indices == first.task_indices
    assert second.draw_seed != first.draw_seed


@pytest.mark.parametrize(
    ("lose", "end"),
    [
        (events.Forfeited(slot=0, at_ms=5, reason="stopping"), SlotState.FORFEITED),
        (events.LeaseExpired(slot=0, at_ms=5, reason="lease_expired"), SlotState.EXPIRED),
    ],
)
def test_a_slot_out_of_attempts_ends_as_its_last_lease_did(driver: Driver, lose: Event, end: SlotState) -> None:
    driver.grant("a", 0)
    driver.apply(events.LeaseExpired(slot=0, at_ms=1, reason="node_silent"))
    driver.grant("b", 0, attempt=1)
    assert driver.apply(lose) == [CapacityFreed(), OutcomeReady()]
    assert driver.state(0) is end


def test_a_vacant_slot_ends_when_its_version_leaves_the_window(driver: Driver) -> None:
    driver.grant("a", 0)
    driver.apply(events.Forfeited(slot=0, at_ms=1, reason=""))
    driver.grant("a", 1)
    driver.apply(events.LeaseExpired(slot=1, at_ms=1, reason="lease_expired"))
    driver.publish(1)
    assert (driver.state(0), driver.state(1)) == (SlotState.VACANT, SlotState.VACANT)
    instructions = driver.publish(2)
    forgotten = [found.slot for found in instructions if isinstance(found, SlotForgotten)]
    assert [(slot.state, slot.reason) for slot in forgotten] == [
        (SlotState.FORFEITED, "lease_forfeited"),
        (SlotState.EXPIRED, "lease_expired"),
    ]
    assert driver.ledger.tally.final == {"forfeited": 1, "expired": 1}


def test_a_submission_that_waited_too_long_for_a_verdict_expires(driver: Driver) -> None:
    made = driver.submit(driver.grant("a", 0))
    driver.publish(1)
    assert driver.state(0) is SlotState.SUBMITTED
    driver.publish(2)
    assert driver.ledger.tally.drops == {"version_window": 2}
    with pytest.raises(IllegalEvent):
        driver.judge(made, Outcome.ACCEPTED)


def test_work_handed_in_after_its_version_left_the_window_expires_at_once(driver: Driver) -> None:
    held = driver.grant("a", 0)
    driver.publish(1)
    driver.publish(2)
    assert driver.state(0) is SlotState.LEASED
    driver.submit(held)
    assert driver.ledger.tally.final == {"expired": 1}
    assert driver.ledger.tally.tokens_submitted == 10


def test_an_accepted_slot_that_no_batch_took_in_time_is_dropped_as_stale(driver: Driver) -> None:
    made = driver.accepted("a", 0)
    driver.publish(1)
    driver.publish(2)
    assert driver.ledger.tally.drops == {"stale": 2}
    assert driver.ledger.table.outstanding_groups == 0
    assert batch_problem(driver.ledger.table, batch(3, [made])) is not None
    assert batch_problem(driver.ledger.table, batch(3, [], {0: "stale"})) is None


def test_a_validators_fault_never_accepts_or_rejects_and_is_set_aside_after_enough_attempts(driver: Driver) -> None:
    made = driver.submit(driver.grant("a", 0))
    assert driver.judge(made, Outcome.UNJUDGED, RejectReason.VALIDATOR_FAULT) == [JudgingNeeded()]
    driver.apply(events.JudgingLapsed(slot=0, validator="v1"))
    found = driver.ledger.table.slot(0)
    assert found is not None
    assert (found.state, found.failed_validators) == (SlotState.SUBMITTED, ("v0", "v1"))

    def due(max_judgings: int) -> list[Event]:
        return due_events(driver.ledger.table, silent_nodes=(), loaded_versions={}, max_judgings=max_judgings, now_ms=0)

    assert due(3) == []
    (closing,) = due(2)
    driver.apply(closing)
    assert driver.state(0) is SlotState.EXPIRED
    assert driver.ledger.tally.drops == {"validator_fault": 2}


def test_versions_are_consecutive(driver: Driver) -> None:
    for version in (0, 2):
        with pytest.raises(IllegalEvent, match="consecutive"):
            driver.publish(version)


def test_versions_are_kept_while_somebody_works_on_them(driver: Driver) -> None:
    held = driver.grant("a", 0)
    driver.publish(1)
    assert not any(isinstance(found, VersionRetired) for found in driver.publish(2))
    instructions = driver.apply(events.Submitted(submission=submission(held), receipt=driver.receipt(submission(held))))
    assert VersionRetired(0) in instructions
    assert VersionRetired(1) in driver.publish(3)
    assert list(driver.ledger.table.versions) == [2, 3]


def test_a_batch_takes_only_accepted_slots_once_and_with_their_submission(driver: Driver) -> None:
    made = driver.accepted("a", 0)
    rejected = driver.submit(driver.grant("b", 1))
    driver.judge(rejected, Outcome.REJECTED, RejectReason.PROMPT)
    waiting = driver.submit(driver.grant("c", 2))
    table = driver.ledger.table
    for wrong in (
        batch(1, [made, made]),
        batch(1, [rejected]),
        batch(1, [waiting]),
        batch(1, [replace(made, num_tokens=11)]),
        batch(1, [replace(made, slot=7)]),
        batch(1, [made], {0: "both"}),
        batch(1, [], {2: "not final"}),
        batch(1, [], {9: "not created"}),
        replace(batch(1, [made]), items=(replace(batch(1, [made]).items[0], groups_trained=(2,)),)),
    ):
        state = driver.ledger.state
        assert batch_problem(table, wrong) is not None
        with pytest.raises(IllegalEvent):
            driver.apply(events.BatchRecorded(batch=wrong))
        assert driver.ledger.state == state
    driver.apply(events.BatchRecorded(batch=batch(1, [made], {1: "known already"})))
    assert batch_problem(table, batch(2, [made])) is not None


def test_every_event_that_the_table_does_not_list_is_refused_and_changes_nothing(driver: Driver) -> None:
    """One slot in every state; each event kind on each of them that the table does not have."""
    driver.rules = driver.ledger.rules
    held = {
        SlotState.LEASED: driver.grant("leased", 0),
        SlotState.VACANT: driver.grant("vacant", 1),
        SlotState.SUBMITTED: driver.grant("submitted", 2),
        SlotState.REJECTED: driver.grant("rejected", 3),
    }
    driver.apply(events.Forfeited(slot=1, at_ms=0, reason=""))
    driver.submit(held[SlotState.SUBMITTED])
    driver.judge(driver.submit(held[SlotState.REJECTED]), Outcome.REJECTED, RejectReason.SCHEMA)
    held[SlotState.ACCEPTED] = lease(driver.rules, "accepted", 4)
    driver.accepted("accepted", 4)
    for state, given in held.items():
        made = submission(given)
        assert driver.state(given.slot) is state
        attempts: list[Event] = [
            events.LeaseGranted(lease=replace(given, attempt=1, lease_id=lease_id(given.slot, 1), node="other")),
            events.LeaseExpired(slot=given.slot, at_ms=0, reason=""),
            events.Forfeited(slot=given.slot, at_ms=0, reason=""),
            events.Submitted(submission=made, receipt=driver.receipt(made)),
            events.VerdictRecorded(slot=given.slot, verdict=verdict(made, Outcome.ACCEPTED)),
            events.JudgingLapsed(slot=given.slot, validator="v"),
            events.SlotClosed(slot=given.slot, reason=""),
        ]
        for event in attempts:
            if type(event) not in TRANSITIONS[state]:
                before = driver.ledger.state
                with pytest.raises(IllegalEvent):
                    driver.apply(event)
                assert driver.ledger.state == before
                driver.ledger.validate()


def test_max_staleness_zero_with_room_for_one_batch_is_the_synchronous_mode() -> None:
    """Nobody samples while the trainer learns: after a batch's slots nothing is granted until the next version."""
    driver = Driver(rules(max_staleness=0, max_outstanding_groups=4))
    for version in range(3):
        driver.publish(version)
        made = [driver.accepted(f"n{index}", 2 * version + index, version=version) for index in range(2)]
        assert grant_for(driver, "n9", version) is None
        driver.apply(events.BatchRecorded(batch=batch(version + 1, made)))
    assert driver.ledger.tally.final == {"accepted": 6}


def test_in_the_synchronous_mode_a_rejected_slot_is_replaced_within_its_version() -> None:
    driver = Driver(rules(max_staleness=0, max_outstanding_groups=4))
    driver.publish(0)
    driver.accepted("a", 0)
    made = driver.submit(driver.grant("b", 1))
    assert grant_for(driver, "c", 0) is None
    driver.judge(made, Outcome.REJECTED, RejectReason.SCHEMA)
    assert grant_for(driver, "c", 0) == Grant(slot=2, attempt=0)


def grant_for(driver: Driver, node: str, version: int, alive: tuple[str, ...] = (), now_ms: int = 0) -> Grant | None:
    return choose_grant(driver.ledger.table, node=node, policy_version=version, alive_workers=alive, now_ms=now_ms)


def test_a_vacant_slot_comes_before_a_new_one_and_prefers_a_node_that_did_not_lose_it(driver: Driver) -> None:
    driver.grant("a", 0)
    driver.apply(events.Forfeited(slot=0, at_ms=0, reason=""))
    assert grant_for(driver, "b", 0, alive=("a", "b")) == Grant(slot=0, attempt=1)
    assert grant_for(driver, "a", 0, alive=("a", "b")) == Grant(slot=1, attempt=0)
    assert grant_for(driver, "a", 0, alive=("a",)) == Grant(slot=0, attempt=1)
    assert grant_for(driver, "a", 0, alive=("a", "b"), now_ms=10_000) == Grant(slot=0, attempt=1)


def test_a_vacant_slot_is_only_for_nodes_that_loaded_its_version(driver: Driver) -> None:
    driver.grant("a", 0)
    driver.publish(1)
    driver.apply(events.Forfeited(slot=0, at_ms=0, reason=""))
    assert grant_for(driver, "b", 1) == Grant(slot=1, attempt=0)
    assert grant_for(driver, "b", 0) == Grant(slot=0, attempt=1)


def test_no_slot_is_granted_before_the_first_version_or_for_an_older_one(driver: Driver) -> None:
    assert grant_for(Driver(rules()), "a", -1) is None
    driver.publish(1)
    assert grant_for(driver, "a", 0) is None


def test_time_ends_leases_that_are_over_or_whose_node_is_silent(driver: Driver) -> None:
    driver.grant("a", 0)
    driver.grant("b", 1)

    def due(now_ms: int, silent: tuple[str, ...] = ()) -> list[Event]:
        return due_events(driver.ledger.table, silent_nodes=silent, loaded_versions={}, max_judgings=3, now_ms=now_ms)

    assert due(9_999) == []
    assert due(9_999, ("b",)) == [events.LeaseExpired(slot=1, at_ms=9_999, reason="node_silent")]
    assert due(10_000) == [events.LeaseExpired(slot=slot, at_ms=10_000, reason="lease_expired") for slot in (0, 1)]


def test_vacant_slots_of_an_older_version_cannot_hold_all_the_room_for_ever(driver: Driver) -> None:
    """All workers die at once, new ones come with the newer version: the old slots make room."""
    for slot, node in enumerate("abcd"):
        driver.grant(node, slot)
    driver.publish(1)
    for slot in range(4):
        driver.apply(events.LeaseExpired(slot=slot, at_ms=0, reason="node_silent"))
    assert grant_for(driver, "e", 1, alive=("e",)) is None

    def due(loaded: dict[str, int], now_ms: int = 0) -> list[Event]:
        return due_events(driver.ledger.table, silent_nodes=(), loaded_versions=loaded, max_judgings=3, now_ms=now_ms)

    assert due({"f": 0}) == []
    assert len(due({"f": 0}, now_ms=10_000)) == 4
    for event in due({"e": 1}):
        driver.apply(event)
    assert grant_for(driver, "e", 1, alive=("e",)) == Grant(slot=4, attempt=0)


def test_the_feed_goes_on_where_the_reader_stopped(driver: Driver) -> None:
    for slot in range(3):
        driver.accepted("a", slot)
    table = driver.ledger.table
    assert [found.sequence for found in table.outcomes(-1, 2)] == [0, 1]
    assert [found.sequence for found in table.outcomes(1, 2)] == [2]
    assert table.outcomes(2, 2) == []
    assert table.has_outcomes(1)
    assert not table.has_outcomes(2)


def test_open_slots_are_those_that_will_still_come(driver: Driver) -> None:
    driver.accepted("a", 0)
    driver.grant("a", 1)
    driver.submit(driver.grant("b", 2))
    driver.grant("c", 3)
    driver.apply(events.Forfeited(slot=3, at_ms=0, reason=""))
    assert driver.ledger.table.open_slots() == [1, 2, 3]


def test_a_forgotten_submission_is_unknown_and_its_counts_stay(driver: Driver) -> None:
    made = driver.accepted("a", 0)
    driver.apply(events.BatchRecorded(batch=batch(1, [made])))
    assert driver.ledger.table.submission(made.digest()) is not None
    driver.publish(1)
    (forgotten,) = [found for found in driver.publish(2) if isinstance(found, SlotForgotten)]
    assert forgotten.slot.slot == 0
    assert driver.ledger.table.submission(made.digest()) is None
    assert driver.ledger.table.slots() == []
    assert driver.ledger.tally.final == {"accepted": 1}


def test_ended_slots_are_bounded_while_no_version_comes() -> None:
    driver = Driver(rules(), max_done_slots=3)
    driver.publish(0)
    for slot in range(6):
        driver.judge(driver.submit(driver.grant("a", slot)), Outcome.REJECTED, RejectReason.SCHEMA)
    assert [slot.slot for slot in driver.ledger.table.slots()] == [3, 4, 5]
    assert driver.ledger.tally.final == {"rejected": 6}


def test_drop_reasons_beyond_the_bound_count_as_other(driver: Driver) -> None:
    tally = driver.ledger.tally
    for number in range(70):
        tally = tally.with_drop(f"reason-{number}", 1)
    assert len(tally.drops) == 65
    assert tally.drops["other"] == 6


def test_every_event_survives_the_log_format() -> None:
    spec = rules()
    held = lease(spec, "a", 0)
    made = submission(held)
    receipt = Receipt(submission_digest=made.digest(), sequence=1, epoch=0, received_at_ms=0, deadline_ms=0)
    logged: list[Record] = [
        events.VersionPublished(policy_version=0, policy_digest=hashed("d")),
        events.BatchRecorded(batch=batch(1, [made], {3: "stale"})),
        events.LeaseGranted(lease=held),
        events.Submitted(submission=made, receipt=receipt),
        events.VerdictRecorded(slot=0, verdict=verdict(made, Outcome.REJECTED, RejectReason.SCHEMA)),
    ]
    for event in logged:
        assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == event


def test_lease_ids_name_their_slot_and_nothing_else_does() -> None:
    assert slot_of(lease_id(17, 2)) == 17
    for wrong in ("", "17", "-1", "1-", "a-b", "1-2-3", "\u0661-\u0662", "1" * 40 + "-0"):
        assert slot_of(wrong) is None


def test_tickets_are_the_same_each_time_and_differ_between_attempts() -> None:
    spec = rules()
    first, second = lease(spec, "a", 0), lease(spec, "b", 0, attempt=1)
    assert write_ticket(spec, SECRET, first) == write_ticket(spec, SECRET, first)
    assert write_ticket(spec, SECRET, first).key != write_ticket(spec, SECRET, second).key
    assert write_ticket(spec, bytes(32), first).key != write_ticket(spec, SECRET, first).key
