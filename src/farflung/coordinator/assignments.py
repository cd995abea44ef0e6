"""Which validator has which submission in hand, and until when. Soft state: after a restart all is given out again.

This module does not know verdicts; what is judged leaves the ledger's waiting list, and with it this book.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from farflung.slots.lifecycle import Slot


@dataclass(frozen=True, kw_only=True, slots=True)
class Assigned:
    slot: int
    validator: str
    deadline_ms: int


class AssignmentBook:
    """
    Args:
        judge_ms: from assignment to deadline.
        max_judgings: failed attempts after which a submission is given to nobody.
    """

    def __init__(self, *, judge_ms: int, max_judgings: int) -> None:
        self._judge_ms = judge_ms
        self._max_judgings = max_judgings
        self._by_slot: dict[int, Assigned] = {}

    def assign(
        self,
        waiting: Sequence[Slot],
        validator: str,
        *,
        held: Collection[str],
        max_count: int,
        alive_validators: Collection[str],
        now_ms: int,
    ) -> list[Slot]:
        """Submissions for a validator that asks: first its own that it does not hold any more, then the oldest free.

        What is given out again keeps its deadline, so a file that kills validators does not circulate for ever. A
        validator that failed on a submission gets it again only if no other is alive, and nobody gets its own node's.

        Args:
            waiting: submissions without a verdict, oldest first.
            held: digests of submissions that the validator still works on.
        """
        mine = [slot for slot in waiting if self._is_of(slot, validator) and _digest(slot) not in held]
        others_alive = set(alive_validators) - {validator}
        free = [
            slot
            for slot in waiting
            if slot.slot not in self._by_slot
            and slot.lease.node != validator
            and len(slot.failed_validators) < self._max_judgings
            and (validator not in slot.failed_validators or others_alive <= set(slot.failed_validators))
        ]
        given = [*mine, *free][:max_count]
        for slot in given:
            self._by_slot.setdefault(
                slot.slot,
                Assigned(slot=slot.slot, validator=validator, deadline_ms=now_ms + self._judge_ms),
            )
        return given

    def may_judge(self, slot: Slot, validator: str) -> bool:
        """Whether a verdict of this validator counts: it holds the assignment, or did and nobody does now."""
        found = self._by_slot.get(slot.slot)
        if slot.lease.node == validator:
            return False
        return validator in slot.failed_validators if found is None else found.validator == validator

    def release(self, slot: int) -> None:
        """Judged, or given up by the validator."""
        self._by_slot.pop(slot, None)

    def lapsed(self, waiting: Iterable[Slot], silent_validators: Collection[str], now_ms: int) -> list[Assigned]:
        """Take back what is overdue, and return it; what a silent validator held is free again without blame."""
        still_waiting = {slot.slot for slot in waiting}
        kept = {
            number: found
            for number, found in self._by_slot.items()
            if number in still_waiting and found.validator not in silent_validators
        }
        overdue = [found for found in kept.values() if found.deadline_ms <= now_ms]
        for found in overdue:
            del kept[found.slot]
        self._by_slot = kept
        return overdue

    def validators(self) -> set[str]:
        """Who holds something."""
        return {found.validator for found in self._by_slot.values()}

    def _is_of(self, slot: Slot, validator: str) -> bool:
        found = self._by_slot.get(slot.slot)
        return found is not None and found.validator == validator


def _digest(slot: Slot) -> str:
    assert slot.submission is not None, f"slot {slot.slot} waits for a verdict without a submission"
    return slot.submission.digest()
