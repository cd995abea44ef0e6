"""Several validators on each submission: the draw, sealed votes, votes shown, the decision (`slots.panel`).

    find        who asks gets what it was drawn for, and is told which votes to show
    seal, show  from validators
    step_due    deadlines, from the sweep

Everything is an event of the public ledger, so that anyone can count the votes again.
"""

from collections.abc import Collection
from dataclasses import dataclass

from farflung.api.errors import RefusalReason, Refused
from farflung.api.records import MAX_ASSIGNMENTS
from farflung.coordinator.core import Core
from farflung.coordinator.faults import record_fault
from farflung.slots import events
from farflung.slots.lifecycle import IllegalEvent, Slot
from farflung.slots.panel import Panel, decision, draw_panel
from farflung.validation.panel_faults import panel_faults
from farflung.wire.node import Role
from farflung.wire.panel import Commitment
from farflung.wire.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What there is to do for a validator."""

    slots: list[Slot]
    """To judge."""
    reveals: tuple[str, ...]
    """Submissions on which its vote is to be shown."""


class PanelDesk:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._rules = core.state.rules.checks
        self._judge_ms = round(core.config.judge_s * 1000)
        self._ready: set[str] = set()
        """Validators that have asked for work since this process started: who is still loading is not drawn."""

    def find(self, validator: str, held: Collection[str], max_count: int) -> Found:
        """The oldest first. What it judged, and holds no more (it was started again), it gets once more.

        Args:
            held: digests of submissions that the validator works on or has judged.
        """
        self._ready.add(validator)
        self._draw_due()
        owed = [
            (slot, slot.panel)
            for slot in self._core.table.waiting()
            if slot.panel is not None and slot.panel.owes(validator)
        ][:MAX_ASSIGNMENTS]
        to_judge = [
            slot for slot, panel in owed if panel.submission_digest not in held or validator not in panel.sealed
        ]
        to_show = [panel.submission_digest for _, panel in owed if panel.is_open and panel.submission_digest in held]
        return Found(slots=to_judge[:max_count], reveals=tuple(to_show))

    def seal(self, slot: Slot, commitment: Commitment) -> None:
        """Raises `Refused`: not drawn, too late, or another one than before."""
        panel = self._panel(slot, commitment.validator)
        if panel.sealed.get(commitment.validator) == commitment.sealed:
            return
        try:
            self._core.step(events.VoteSealed(slot=slot.slot, commitment=commitment))
        except IllegalEvent as error:
            raise Refused(RefusalReason.NOT_ASSIGNED, str(error)) from error
        self._go_on(slot.slot)

    def show(self, slot: Slot, verdict: Verdict, salt: str) -> None:
        """Raises `Refused`: it is not what was committed to, or not its time."""
        panel = self._panel(slot, verdict.validator)
        if panel.votes.get(verdict.validator) == verdict:
            return
        try:
            self._core.step(events.VoteShown(slot=slot.slot, verdict=verdict, salt=salt))
        except IllegalEvent as error:
            raise Refused(RefusalReason.NOT_ASSIGNED, str(error)) from error
        self._go_on(slot.slot)

    def step_due(self) -> None:
        """What has to happen by now."""
        self._draw_due()
        now_ms = self._core.now_ms()
        for slot in self._core.table.waiting():
            panel = slot.panel
            if panel is None:
                continue
            silent = self._core.nodes.silent(Role.VALIDATOR, panel.waits_for, now_ms)
            lost = () if panel.is_open else self._core.state.ledger.standings.lost_bonds
            if panel.deadline_ms <= now_ms or set(panel.waits_for) <= {*silent, *lost}:
                self._end_phase(slot, panel)

    def _panel(self, slot: Slot, validator: str) -> Panel:
        if slot.panel is None or validator not in slot.panel.members:
            raise Refused(RefusalReason.NOT_ASSIGNED, f"{validator} was not drawn to judge slot {slot.slot}")
        return slot.panel

    def _go_on(self, number: int) -> None:
        """When nobody has to be waited for."""
        slot = self._core.table.slot(number)
        if slot is not None and slot.panel is not None and not slot.panel.waits_for:
            self._end_phase(slot, slot.panel)

    def _end_phase(self, slot: Slot, panel: Panel) -> None:
        now_ms = self._core.now_ms()
        if not panel.is_open and len(panel.sealed) >= self._rules.quorum:
            self._core.step(events.VotesOpened(slot=slot.slot, at_ms=now_ms, reveal_by_ms=now_ms + self._judge_ms))
            return
        decided = decision(panel, self._rules.quorum)
        self._core.step(
            events.PanelFailed(slot=slot.slot, at_ms=now_ms)
            if decided is None
            else events.VerdictRecorded(slot=slot.slot, verdict=decided)
        )
        for fault in panel_faults(panel, decided, pool_digest=self._core.state.pool_digest, slot=slot.slot):
            record_fault(self._core, fault)

    def _draw_due(self) -> None:
        """For every submission that nobody judges yet, as soon as there are enough validators."""
        now_ms = self._core.now_ms()
        for slot in self._core.table.waiting():
            if slot.panel is not None or slot.num_failed_panels >= self._core.config.max_judgings:
                continue
            candidates = self._candidates(slot, now_ms)
            if len(candidates) >= self._enough(slot, now_ms):
                self._draw(slot, candidates, now_ms)

    def _candidates(self, slot: Slot, now_ms: int) -> list[str]:
        """Those that are there, can lose something, and were not tried before, if there are enough of these."""
        self._ready &= self._core.nodes.alive_validators(now_ms)
        fit = self._ready - set(self._core.state.ledger.standings.lost_bonds) - {slot.lease.node}
        fresh = fit - set(slot.failed_validators)
        return sorted(fresh if len(fresh) >= self._rules.validators_per_submission else fit)

    def _enough(self, slot: Slot, now_ms: int) -> int:
        """As many as the rules say; a quorum when the submission has waited for long."""
        assert slot.receipt is not None, "it is submitted"
        has_waited = now_ms - slot.receipt.received_at_ms >= self._judge_ms
        return self._rules.quorum if has_waited else self._rules.validators_per_submission

    def _draw(self, slot: Slot, candidates: list[str], now_ms: int) -> None:
        assert slot.submission is not None, "it is submitted"
        self._core.step(
            events.PanelDrawn(
                slot=slot.slot,
                at_ms=now_ms,
                round_number=slot.num_failed_panels,
                candidates=tuple(candidates),
                members=draw_panel(
                    self._core.state.epochs.of_slot(slot.slot).secret,
                    slot.submission.digest(),
                    slot.num_failed_panels,
                    candidates,
                    self._rules.validators_per_submission,
                ),
                commit_by_ms=now_ms + self._judge_ms,
            )
        )
