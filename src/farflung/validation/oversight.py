"""The auditor's replay of checking: who was drawn to judge, how votes were counted, what was recorded against whom.

    panel     validators of a submission are those that the epoch's secret draws among the candidates
    fault     each fault follows from votes or leases that the ledger shows, and none that does is left out
    ringer    what was planted had been committed to before, and its judge accepted it if a bond was lost for it

Decisions themselves (a quorum, sealed votes that fit) are the ledger's own rules, which `slots.audit` replays. What an
audit should have looked at is counted beside what says that it did. Pure; signatures are the caller's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from farflung.slots import events
from farflung.slots.audit import Deviation
from farflung.slots.events import Event
from farflung.slots.ledger import Ledger
from farflung.slots.lifecycle import IllegalEvent, Slot
from farflung.slots.panel import decision, draw_panel
from farflung.slots.sampling import audited_rollout
from farflung.validation.panel_faults import panel_faults
from farflung.validation.proof_checks import AUDITED
from farflung.wire.epoch import EpochNotice
from farflung.wire.panel import Fault, FaultKind, RingerKind
from farflung.wire.pool import PoolSpec
from farflung.wire.verdict import Outcome, Verdict

PANEL, FAULT, RINGER = "panel", "fault", "ringer"

_RINGER_FAULTS = frozenset({FaultKind.ACCEPTED_RINGER, FaultKind.COPIED_CLAIMS})


@dataclass(kw_only=True, slots=True)
class Oversight:
    """What a replay found."""

    deviations: list[Deviation] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    """Everything recorded against anybody, in order."""
    lost_bonds: dict[str, Fault] = field(default_factory=dict)
    """Validator -> what cost it its bond."""
    num_panels_checked: int = 0
    num_panels_sealed: int = 0
    """Of epochs that are not revealed."""
    num_audits_due: int = 0
    """Accepted submissions of revealed epochs that randomness, or their node's being new, asked an audit of."""
    num_audits_done: int = 0
    """Of these, with a verdict that says that it was made."""
    num_ringers: int = 0
    """Planted files that were judged."""


def oversee(rules: PoolSpec, notices: Sequence[EpochNotice], history: Iterable[tuple[int, Event]]) -> Oversight:
    """Replay a pool from its first event.

    Args:
        notices: of all epochs, oldest first.
        history: (sequence, event) from the beginning, in order.
    """
    replay = _Replay(rules, notices)
    for sequence, event in history:
        replay.step(f"event {sequence}", event)
    return replay.found


class _Replay:
    def __init__(self, rules: PoolSpec, notices: Sequence[EpochNotice]) -> None:
        self._rules = rules
        self._pool_digest = rules.digest()
        self._notices = notices
        self._ledger = Ledger(rules)
        self._expected: list[Fault] = []
        self._judged_ringers: dict[str, events.RingerEnded] = {}
        self._planted: set[str] = set()
        self.found = Oversight()

    def step(self, where: str, event: Event) -> None:
        if isinstance(event, events.FaultRecorded | events.BondForfeited):
            self._fault(where, event)
        else:
            self._expect_nothing(where)
        before = self._slot_of(event)
        try:
            self._ledger.apply(event)
        except IllegalEvent:
            return  # `slots.audit` names it
        match event:
            case events.PanelDrawn():
                self._panel(where, event, before)
            case events.VerdictRecorded() | events.PanelFailed():
                self._votes(before)
            case events.Forfeited() | events.LeaseExpired():
                self._lost(before)
            case events.RingerPlanted(ringer_digest=digest):
                self._planted.add(digest)
            case events.RingerEnded():
                self._ringer(where, event)
            case _:
                pass
        if isinstance(event, events.VerdictRecorded):
            self._audit(event.verdict, before)

    def _slot_of(self, event: Event) -> Slot | None:
        number = getattr(event, "slot", None)
        return self._ledger.table.slot(number) if isinstance(number, int) else None

    def _deviation(self, rule: str, where: str, detail: str) -> None:
        self.found.deviations.append(Deviation(rule=rule, where=where, detail=detail))

    def _secret_of(self, slot: int) -> bytes | None:
        """None while it is not revealed."""
        for notice in self._notices:
            if notice.first_slot <= slot and (notice.end_slot is None or slot < notice.end_slot):
                return bytes.fromhex(notice.secret) or None
        return None

    def _panel(self, where: str, event: events.PanelDrawn, slot: Slot | None) -> None:
        secret = self._secret_of(event.slot)
        if secret is None or slot is None or slot.submission is None:
            self.found.num_panels_sealed += 1
            return
        self.found.num_panels_checked += 1
        size = self._rules.checks.validators_per_submission
        drawn = draw_panel(secret, slot.submission.digest(), event.round_number, event.candidates, size)
        if drawn != event.members:
            self._deviation(PANEL, where, f"slot {event.slot} was given to {event.members}, the secret draws {drawn}")

    def _votes(self, slot: Slot | None) -> None:
        if slot is None or slot.panel is None:
            return
        decided = decision(slot.panel, self._rules.checks.quorum)
        self._expected = panel_faults(slot.panel, decided, pool_digest=self._pool_digest, slot=slot.slot)

    def _lost(self, slot: Slot | None) -> None:
        if slot is None:
            return
        node = slot.lease.node
        if self._ledger.standings.of(node).is_over_budget(self._rules.checks):
            kind = FaultKind.TOO_MANY_FORFEITS
            self._expected = [Fault(pool_digest=self._pool_digest, node=node, kind=kind, slot=slot.slot)]

    def _ringer(self, where: str, event: events.RingerEnded) -> None:
        self.found.num_ringers += event.verdict is not None
        ringer, verdict = event.ringer, event.verdict
        digest = ringer.digest()
        if digest not in self._planted:
            self._deviation(RINGER, where, f"a planted file for {ringer.validator} was not committed to before")
        self._planted.discard(digest)
        self._judged_ringers[ringer.submission.digest()] = event
        if verdict is not None and verdict.outcome is Outcome.ACCEPTED and ringer.kind is not RingerKind.CLAIMS:
            self._expected = [
                Fault(
                    pool_digest=self._pool_digest,
                    node=ringer.validator,
                    kind=FaultKind.ACCEPTED_RINGER,
                    slot=ringer.lease.slot,
                    submission_digest=ringer.submission.digest(),
                    verdict=verdict,
                )
            ]

    def _fault(self, where: str, event: events.FaultRecorded | events.BondForfeited) -> None:
        is_forfeit = isinstance(event, events.BondForfeited)
        fault = event.forfeit.fault if isinstance(event, events.BondForfeited) else event.fault
        self.found.faults.append(fault)
        if is_forfeit:
            self.found.lost_bonds.setdefault(fault.node, fault)
        elif fault.kind.forfeits_bond and fault.node not in self._ledger.standings.lost_bonds:
            self._deviation(FAULT, where, f"{fault.node}: {fault.kind} costs the bond, which was kept")
        matching = [each for each in self._expected if _same(each, fault)]
        if matching:
            self._expected.remove(matching[0])
        elif fault.kind not in _RINGER_FAULTS or not self._is_on_ringer(fault):
            self._deviation(FAULT, where, f"{fault.node}: {fault.kind} on slot {fault.slot}, which nothing here shows")

    def _is_on_ringer(self, fault: Fault) -> bool:
        """A validator that gave the rewards that a planted file claims: the evidence behind its verdict shows it."""
        event = self._judged_ringers.get(fault.submission_digest)
        if event is None or event.verdict is None or event.verdict != fault.verdict:
            return False
        return fault.kind is FaultKind.COPIED_CLAIMS and event.ringer.kind is RingerKind.CLAIMS

    def _expect_nothing(self, where: str) -> None:
        """Faults are recorded at once: before anything else happens."""
        for fault in self._expected:
            self._deviation(FAULT, where, f"{fault.node}: {fault.kind} on slot {fault.slot} was not recorded before")
        self._expected = []

    def _audit(self, verdict: Verdict, slot: Slot | None) -> None:
        """Whether a verdict that accepts says that the audit was made that was due."""
        secret = None if slot is None else self._secret_of(slot.slot)
        if verdict.outcome is not Outcome.ACCEPTED or slot is None or slot.submission is None or secret is None:
            return
        due = audited_rollout(
            secret,
            verdict.submission_digest,
            num_accepted_before=slot.num_accepted_before,
            num_rollouts=slot.submission.num_rollouts,
            rules=self._rules.checks,
        )
        if due is not None:
            self.found.num_audits_due += 1
            self.found.num_audits_done += verdict.measured.get(AUDITED) == due


def _same(expected: Fault, found: Fault) -> bool:
    """Apart from what is told for people."""
    fields = ("pool_digest", "node", "kind", "slot", "submission_digest", "verdict", "contrary")
    return all(getattr(expected, name) == getattr(found, name) for name in fields)
