"""Envelopes that only this API uses: lists of records, and the body of a refusal."""

from typing import ClassVar

from farflung.wire.batch import SlotOutcome
from farflung.wire.canonical import Record
from farflung.wire.submission import Assignment

MAX_ASSIGNMENTS = 64
"""Most submissions that a validator may hold at once."""
MAX_OUTCOMES = 256
"""Most outcomes in one answer."""
MAX_LEDGER_KEYS = 4096
"""Most keys in one answer."""


class Refusal(Record, frozen=True, kw_only=True):
    """Body of every 4xx answer."""

    MAX_BYTES: ClassVar[int] = 4096

    reason: str
    message: str


class Assignments(Record, frozen=True, kw_only=True):
    MAX_BYTES: ClassVar[int] = 4 << 20

    items: tuple[Assignment, ...]
    reveals: tuple[str, ...] = ()
    """Digests of submissions on which the validator's vote is to be shown now."""


class Outcomes(Record, frozen=True, kw_only=True):
    MAX_BYTES: ClassVar[int] = 32 << 20

    items: tuple[SlotOutcome, ...]


class LedgerIndex(Record, frozen=True, kw_only=True):
    """What is published of the journal (`wire.history`), in order; ask for those after the last one."""

    keys: tuple[str, ...]


class OpenSlots(Record, frozen=True, kw_only=True):
    """Which slots are still to come, so that nobody waits for one that will not."""

    MAX_BYTES: ClassVar[int] = 1 << 20

    slots: tuple[int, ...]
    """Those that have not reached a final state, ascending."""
    next_slot: int
    """The first that was not leased yet; every one below it that is not in `slots` has ended."""
