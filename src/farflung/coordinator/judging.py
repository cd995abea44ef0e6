"""The validators' desk: submissions out, verdicts in."""

import sys
from collections.abc import Collection

from farflung.api.errors import RefusalReason, Refused
from farflung.coordinator.assignments import AssignmentBook
from farflung.coordinator.core import Core
from farflung.coordinator.signals import Topic
from farflung.slots.events import JudgingLapsed, VerdictRecorded
from farflung.slots.lifecycle import Slot
from farflung.wire.node import Role
from farflung.wire.submission import Assignment
from farflung.wire.verdict import EvidenceBundle, Judgement, Outcome, SlotState


class JudgingDesk:
    def __init__(self, core: Core) -> None:
        self._core = core
        # In deterministic mode a submission is offered until it is judged: nothing is set aside.
        max_judgings = sys.maxsize if core.state.rules.is_deterministic else core.config.max_judgings
        self._book = AssignmentBook(judge_ms=round(core.config.judge_s * 1000), max_judgings=max_judgings)

    async def assignments(
        self, node: str, max_count: int, held: Collection[str], wait_s: float
    ) -> tuple[Assignment, ...]:
        """Work for a validator, as soon as there is some."""

        def find() -> list[Slot] | None:
            now_ms = self._core.now_ms()
            found = self._book.assign(
                self._core.table.waiting(),
                node,
                held=held,
                max_count=max_count,
                alive_validators=self._core.nodes.alive_validators(now_ms),
                now_ms=now_ms,
            )
            return found or None

        slots = await self._core.poll(Topic.JUDGING, find, wait_s) or []
        return tuple(
            Assignment(submission=slot.submission, lease=slot.lease) for slot in slots if slot.submission is not None
        )

    async def judge(self, judgement: Judgement) -> None:
        """From whoever holds the assignment; a verdict on a slot that ended meanwhile changes nothing."""
        verdict = judgement.verdict
        if verdict.pool_digest != self._core.state.pool_digest:
            raise Refused(RefusalReason.WRONG_POOL, f"the verdict is for pool {verdict.pool_digest}")
        self._core.check_signed(verdict, verdict.validator)
        slot = self._slot(verdict.submission_digest)
        if slot.state is SlotState.SUBMITTED:
            self._check_holds(slot, verdict.validator)
            if verdict.outcome is Outcome.ACCEPTED:
                self._check_rewards(judgement.evidence)
            if verdict.outcome is not Outcome.UNJUDGED:
                await self._core.files.put_evidence(judgement.evidence)
            slot = self._slot(verdict.submission_digest)
        if slot.state is SlotState.SUBMITTED:
            self._core.step(VerdictRecorded(slot=slot.slot, verdict=verdict))
            self._book.release(slot.slot)
        await self._core.committed()

    def take_back_overdue(self) -> None:
        """Give to others what a validator did not judge in time, or died with."""
        now_ms = self._core.now_ms()
        silent = self._core.nodes.silent(Role.VALIDATOR, self._book.validators(), now_ms)
        for overdue in self._book.lapsed(self._core.table.waiting(), silent, now_ms):
            self._core.step(JudgingLapsed(slot=overdue.slot, validator=overdue.validator))
        if silent:
            self._core.switchboard.ring(Topic.JUDGING)

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
