"""The validators' desk: submissions out, verdicts in.

Who judges alone is whoever asks first (`coordinator.assignments`); where several judge, they are drawn
(`coordinator.panels`).
"""

import sys
from collections.abc import Collection

from farflung.api.errors import RefusalReason, Refused
from farflung.api.records import Assignments
from farflung.coordinator.assignments import AssignmentBook
from farflung.coordinator.core import Core
from farflung.coordinator.panels import Found, PanelDesk
from farflung.coordinator.ringers import Planted, RingerDesk
from farflung.coordinator.signals import Topic
from farflung.slots.events import JudgingLapsed, VerdictRecorded
from farflung.slots.lifecycle import Slot
from farflung.slots.sampling import audited_rollout
from farflung.wire.lease import Lease
from farflung.wire.node import Role
from farflung.wire.panel import Commitment, Reveal, seal
from farflung.wire.submission import Assignment, Submission
from farflung.wire.verdict import EvidenceBundle, Judgement, Outcome, SlotState, Verdict


class JudgingDesk:
    def __init__(self, core: Core, ringers: RingerDesk | None = None) -> None:
        self._core = core
        # In deterministic mode a submission is offered until it is judged: nothing is set aside.
        max_judgings = sys.maxsize if core.state.rules.is_deterministic else core.config.max_judgings
        self._book = AssignmentBook(judge_ms=round(core.config.judge_s * 1000), max_judgings=max_judgings)
        self._panels = PanelDesk(core) if core.state.rules.checks.validators_per_submission > 1 else None
        self.ringers = ringers or RingerDesk(core)

    async def assignments(self, node: str, max_count: int, held: Collection[str], wait_s: float) -> Assignments:
        """Work for a validator, as soon as there is some."""

        def find() -> Assignments | None:
            if node in self._core.state.ledger.standings.lost_bonds:
                return None
            planted = self.ringers.find(node, held)[:max_count]
            found = self._find(node, held, max_count - len(planted))
            reveals = (*found.reveals, *self.ringers.to_show(node, held))
            if not planted and not found.slots and not reveals:
                return None
            items = (*map(self._planted, planted), *map(self._assignment, found.slots))
            self.ringers.gave(node, [item.submission.digest() for item in items[len(planted) :]])
            return Assignments(items=items, reveals=reveals)

        return await self._core.poll(Topic.JUDGING, find, wait_s) or Assignments(items=())

    async def seal(self, commitment: Commitment) -> None:
        """A validator has judged, and keeps its vote to itself for now."""
        if commitment.pool_digest != self._core.state.pool_digest:
            raise Refused(RefusalReason.WRONG_POOL, f"the commitment is for pool {commitment.pool_digest}")
        self._core.check_signed(commitment, commitment.validator)
        self._check_bond(commitment.validator)
        planted = self.ringers.of(commitment.submission_digest)
        if planted is not None:
            self._check_is_for(planted, commitment.validator)
            planted.sealed = planted.sealed or commitment.sealed
            self._core.switchboard.ring(Topic.JUDGING)
        elif not self.ringers.has_ended(commitment.submission_digest):
            slot = self._slot(commitment.submission_digest)
            if slot.state is SlotState.SUBMITTED:
                self._required_panels().seal(slot, commitment)
        await self._core.committed()

    async def show(self, reveal: Reveal) -> None:
        """The vote behind a commitment; on a slot that ended meanwhile it changes nothing."""
        verdict = reveal.judgement.verdict
        self._check_verdict(verdict)
        if verdict.rewards_digest != reveal.judgement.evidence.rewards_digest:
            raise Refused(RefusalReason.BAD_REQUEST, "a vote is about outcome and rewards: rewards_digest is wrong")
        planted = self.ringers.of(verdict.submission_digest)
        if planted is not None:
            if planted.sealed != seal(
                verdict.submission_digest, verdict.validator, verdict.outcome, verdict.rewards_digest, reveal.salt
            ):
                raise Refused(RefusalReason.NOT_ASSIGNED, f"{verdict.validator} committed to another vote")
            await self._take_planted(planted, reveal.judgement)
        elif not self.ringers.has_ended(verdict.submission_digest):
            slot = self._slot(verdict.submission_digest)
            if slot.state is SlotState.SUBMITTED:
                await self._keep_evidence(reveal.judgement)
                slot = self._slot(verdict.submission_digest)
            if slot.state is SlotState.SUBMITTED:
                self._required_panels().show(slot, verdict, reveal.salt)
        await self._core.committed()

    async def judge(self, judgement: Judgement) -> None:
        """From whoever holds the assignment; a verdict on a slot that ended meanwhile changes nothing."""
        verdict = judgement.verdict
        self._check_verdict(verdict)
        self._check_bond(verdict.validator)
        if self._panels is not None:
            raise Refused(RefusalReason.NOT_ASSIGNED, "several validators judge here: commit first, then show the vote")
        planted = self.ringers.of(verdict.submission_digest)
        if planted is not None:
            await self._take_planted(planted, judgement)
        elif not self.ringers.has_ended(verdict.submission_digest):
            await self._take(judgement)
        await self._core.committed()

    async def _take(self, judgement: Judgement) -> None:
        """The verdict of whoever judges alone."""
        verdict = judgement.verdict
        slot = self._slot(verdict.submission_digest)
        if slot.state is SlotState.SUBMITTED:
            self._check_holds(slot, verdict.validator)
            await self._keep_evidence(judgement)
            slot = self._slot(verdict.submission_digest)
        if slot.state is SlotState.SUBMITTED:
            self._core.step(VerdictRecorded(slot=slot.slot, verdict=verdict))
            self._book.release(slot.slot)

    async def _take_planted(self, planted: Planted, judgement: Judgement) -> None:
        """The same questions as of any other: nothing shows that it is planted."""
        verdict = judgement.verdict
        self._check_is_for(planted, verdict.validator)
        await self._keep_evidence(judgement)
        if self.ringers.of(verdict.submission_digest) is planted:
            self.ringers.ended(planted, verdict, judgement.evidence)

    async def _keep_evidence(self, judgement: Judgement) -> None:
        """Raises `Refused`: it accepts without a reward for each rollout."""
        if judgement.verdict.outcome is Outcome.ACCEPTED:
            self._check_rewards(judgement.evidence)
        if judgement.verdict.outcome is not Outcome.UNJUDGED:
            await self._core.files.put_evidence(judgement.evidence)

    def take_back_overdue(self) -> None:
        """Give to others what a validator did not judge in time, or died with."""
        if self._panels is not None:
            self._panels.step_due()
            return
        now_ms = self._core.now_ms()
        silent = self._core.nodes.silent(Role.VALIDATOR, self._book.validators(), now_ms)
        for overdue in self._book.lapsed(self._core.table.waiting(), silent, now_ms):
            self._core.step(JudgingLapsed(slot=overdue.slot, validator=overdue.validator))
        if silent:
            self._core.switchboard.ring(Topic.JUDGING)

    def _find(self, node: str, held: Collection[str], max_count: int) -> Found:
        """Real work."""
        if self._panels is not None:
            return self._panels.find(node, held, max_count)
        now_ms = self._core.now_ms()
        given = self._book.assign(
            self._core.table.waiting(),
            node,
            held=held,
            max_count=max_count,
            alive_validators=self._core.nodes.alive_validators(now_ms),
            now_ms=now_ms,
        )
        return Found(slots=given, reveals=())

    def _assignment(self, slot: Slot) -> Assignment:
        assert slot.submission is not None, "it is submitted"
        return self._given(slot.submission, slot.lease, slot.num_accepted_before)

    def _planted(self, planted: Planted) -> Assignment:
        """Of a node that is new, as every planted file is."""
        return self._given(planted.ringer.submission, planted.ringer.lease, num_accepted_before=0)

    def _given(self, submission: Submission, lease: Lease, num_accepted_before: int) -> Assignment:
        return Assignment(
            submission=submission,
            lease=lease,
            is_sealed=self._panels is not None,
            audited_rollout=audited_rollout(
                self._core.state.epochs.of_slot(lease.slot).secret,
                submission.digest(),
                num_accepted_before=num_accepted_before,
                num_rollouts=submission.num_rollouts,
                rules=self._core.state.rules.checks,
            ),
        )

    def _check_is_for(self, planted: Planted, validator: str) -> None:
        if validator != planted.ringer.validator:
            raise Refused(RefusalReason.NOT_ASSIGNED, f"slot {planted.ringer.lease.slot} is not {validator}'s to judge")

    def _check_bond(self, validator: str) -> None:
        if validator in self._core.state.ledger.standings.lost_bonds:
            raise Refused(RefusalReason.NOT_ASSIGNED, f"{validator} has lost its bond, and judges nothing any more")

    def _required_panels(self) -> PanelDesk:
        if self._panels is None:
            raise Refused(RefusalReason.NOT_ASSIGNED, "one validator judges here: there is nothing to commit to")
        return self._panels

    def _check_verdict(self, verdict: Verdict) -> None:
        if verdict.pool_digest != self._core.state.pool_digest:
            raise Refused(RefusalReason.WRONG_POOL, f"the verdict is for pool {verdict.pool_digest}")
        self._core.check_signed(verdict, verdict.validator)

    def _slot(self, submission_digest: str) -> Slot:
        slot = self._core.table.submission(submission_digest)
        if slot is None:
            raise Refused(
                RefusalReason.UNKNOWN_SUBMISSION, f"submission {submission_digest} is unknown, or was forgotten"
            )
        return slot

    def _check_holds(self, slot: Slot, validator: str) -> None:
        if not self._book.may_judge(slot, validator):
            raise Refused(
                RefusalReason.NOT_ASSIGNED,
                f"slot {slot.slot} is not {validator}'s to judge: it is its own node's work, or was never given to it, "
                "or to another since",
            )

    def _check_rewards(self, evidence: EvidenceBundle) -> None:
        """An accepted submission has one reward for each rollout of the slot, graded or not."""
        rules = self._core.state.rules
        found = sorted((result.group, result.sample) for result in evidence.rewards)
        size = rules.rollouts_per_group
        expected = [(group, sample) for group in range(rules.groups_per_slot) for sample in range(size)]
        if found != expected:
            raise Refused(
                RefusalReason.BAD_REQUEST,
                f"{len(found)} rewards do not name each of {rules.groups_per_slot} x {size} rollouts once",
            )
        largest = max((abs(result.reward) for result in evidence.rewards if result.reward is not None), default=0.0)
        if largest > rules.max_abs_reward:
            raise Refused(
                RefusalReason.BAD_REQUEST, f"a reward of size {largest:g}, the pool allows {rules.max_abs_reward:g}"
            )
