"""Random lives of one submission among several validators: nothing but a quorum ends it, and no illegal step leaves a
trace."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from farflung.slots import events
from farflung.slots.events import Event
from farflung.slots.illegal import IllegalEvent
from farflung.slots.ledger import Ledger
from farflung.slots.panel import decision
from farflung.wire.canonical import sha256_hex
from farflung.wire.check_rules import CheckRules
from farflung.wire.lease import Lease
from farflung.wire.panel import Commitment, seal
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import Outcome, RejectReason, SlotState, Verdict

VALIDATORS = ("a", "b", "c", "d")
POLICY, SALT = sha256_hex(b"p"), "5a" * 32
RULES = PoolSpec(
    name="test",
    environment=EnvironmentSpec(name="sort-digits", num_tasks=10),
    tokenizer_digest=sha256_hex(b"t"),
    model_config_digest=sha256_hex(b"m"),
    group_size=2,
    groups_per_slot=1,
    groups_per_batch=1,
    max_staleness=1,
    max_outstanding_groups=4,
    temperature=1.0,
    max_prompt_tokens=16,
    max_completion_tokens=16,
    lease_s=10.0,
    max_attempts=3,
    max_file_bytes=1 << 20,
    checks=CheckRules(validators_per_submission=3, quorum=2),
)
LEASE = Lease(
    pool_digest=RULES.digest(), lease_id="0-0", slot=0, attempt=0, node="w", policy_version=0, policy_digest=POLICY,
    task_indices=(0,), target_lengths=(0,), draw_seed="5e" * 32, capability_class="any", issued_at_ms=0,
    expires_at_ms=10_000,
)  # fmt: skip
SUBMISSION = Submission(
    pool_digest=RULES.digest(), node="w", lease_id="0-0", slot=0, attempt=0, policy_version=0, policy_digest=POLICY,
    file_key="k", file_digest=sha256_hex(b"f"), file_bytes=1, num_rollouts=2, num_tokens=2,
)  # fmt: skip
REASONS = (None, RejectReason.SCHEMA, RejectReason.VALIDATOR_FAULT, RejectReason.VERSION_WINDOW)


def verdict(validator: str, reason: RejectReason | None) -> Verdict:
    outcome = Outcome.ACCEPTED if reason is None else reason.outcome
    return Verdict(
        pool_digest=RULES.digest(),
        submission_digest=SUBMISSION.digest(),
        validator=validator,
        outcome=outcome,
        reason=reason,
        evidence_digest=sha256_hex(validator.encode()),
        rewards_digest=sha256_hex(b"rewards") if reason is None else "",
        judged_at_ms=0,
    )


def votes_are(opened: bool) -> Any:
    """For most steps the right time; the wrong one is tried by the others."""

    def holds(machine: Any) -> bool:
        panel = machine.slot.panel
        return panel is not None and panel.is_open == opened

    return precondition(holds)


class PanelLife(RuleBasedStateMachine):
    @initialize()
    def hand_in(self) -> None:
        self.ledger = Ledger(RULES)
        self.log: list[Event] = []
        digest = SUBMISSION.digest()
        receipt = Receipt(submission_digest=digest, sequence=0, epoch=0, received_at_ms=0, deadline_ms=0)
        for event in (
            events.VersionPublished(policy_version=0, policy_digest=POLICY),
            events.LeaseGranted(lease=LEASE),
            events.Submitted(submission=SUBMISSION, receipt=receipt),
        ):
            self.attempt(event)
        self.opinions: dict[str, RejectReason | None] = {}

    def attempt(self, event: Event) -> bool:
        """Whether it could happen; if not, nothing did."""
        before = self.ledger.state
        try:
            self.ledger.apply(event)
        except IllegalEvent:
            assert self.ledger.state == before
            return False
        self.log.append(event)
        return True

    @property
    def slot(self) -> Any:
        slot = self.ledger.table.slot(0)
        assert slot is not None
        return slot

    @precondition(lambda self: self.slot.panel is None)
    @rule(members=st.permutations(VALIDATORS), size=st.sampled_from((3, 3, 3, 2, 4)))
    def draw(self, members: list[str], size: int) -> None:
        slot = self.slot
        is_possible = slot.state is SlotState.SUBMITTED and slot.panel is None and size == 3
        drawn = events.PanelDrawn(
            slot=0,
            at_ms=0,
            round_number=slot.num_failed_panels,
            candidates=VALIDATORS,
            members=tuple(members[:size]),
            commit_by_ms=10,
        )
        assert self.attempt(drawn) == is_possible
        if is_possible:
            self.opinions = {}

    @rule(validator=st.sampled_from(VALIDATORS), reason=st.sampled_from(REASONS))
    def commit(self, validator: str, reason: RejectReason | None) -> None:
        vote = verdict(validator, reason)
        sealed = seal(SUBMISSION.digest(), validator, vote.outcome, vote.rewards_digest, SALT)
        commitment = Commitment(
            pool_digest=RULES.digest(), submission_digest=SUBMISSION.digest(), validator=validator, sealed=sealed
        )
        if self.attempt(events.VoteSealed(slot=0, commitment=commitment)):
            self.opinions[validator] = reason

    @votes_are(opened=False)
    @rule(reasons=st.lists(st.sampled_from(REASONS), min_size=3, max_size=3), opens=st.booleans())
    def commit_all(self, reasons: list[RejectReason | None], opens: bool) -> None:
        """What mostly happens."""
        for validator, reason in zip(self.slot.panel.members if self.slot.panel else (), reasons, strict=False):
            self.commit(validator, reason)
        if opens:
            self.open()

    @votes_are(opened=True)
    @rule()
    def show_all(self) -> None:
        for validator, reason in self.opinions.items():
            self.show(validator, reason)

    @rule()
    def open(self) -> None:
        self.attempt(events.VotesOpened(slot=0, at_ms=0, reveal_by_ms=20))

    @rule(validator=st.sampled_from(VALIDATORS), reason=st.sampled_from(REASONS))
    def show(self, validator: str, reason: RejectReason | None) -> None:
        panel = self.slot.panel
        vote = verdict(validator, reason)
        was_shown = self.attempt(events.VoteShown(slot=0, verdict=vote, salt=SALT))
        if was_shown:
            assert panel.is_open
            assert validator in panel.members
            assert self.slot.panel.votes[validator] == vote

    @votes_are(opened=True)
    @rule()
    def decide_truly(self) -> None:
        decided = None if self.slot.panel is None else decision(self.slot.panel, 2)
        if decided is not None:
            assert self.attempt(events.VerdictRecorded(slot=0, verdict=decided))

    @votes_are(opened=True)
    @rule(validator=st.sampled_from(VALIDATORS), reason=st.sampled_from(REASONS))
    def decide(self, validator: str, reason: RejectReason | None) -> None:
        slot = self.slot
        decided = None if slot.panel is None else decision(slot.panel, 2)
        vote = verdict(validator, reason)
        assert self.attempt(events.VerdictRecorded(slot=0, verdict=vote)) == (decided == vote)

    @votes_are(opened=True)
    @rule()
    def fail(self) -> None:
        slot = self.slot
        is_possible = slot.panel is not None and decision(slot.panel, 2) is None
        assert self.attempt(events.PanelFailed(slot=0, at_ms=0)) == is_possible

    @invariant()
    def the_ledger_is_whole_and_replays(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.ledger.validate()
        again = Ledger(RULES)
        for event in self.log:
            again.apply(event)
        assert again.state == self.ledger.state
        assert (self.slot.panel is not None) <= (self.slot.state is SlotState.SUBMITTED)
        if self.slot.state is not SlotState.SUBMITTED:
            assert self.slot.verdict is not None, "nothing but a quorum has ended it"


TestPanelLife = PanelLife.TestCase
TestPanelLife.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
