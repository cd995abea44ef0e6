"""What stands in the coordinator's event log: its entries as records, and back.

A publication is one entry, though it is two events to the ledger (the batch that was consumed, the version that came of
it), so that no crash can part them. This module does not know the database (`state.event_log`) or the rules.
"""

from collections.abc import Mapping

import msgspec

from farflung.errors import OurFault
from farflung.slots import events
from farflung.slots.epochs import EpochBegan
from farflung.slots.ledger import LedgerState
from farflung.state.event_log import SNAPSHOT, Entry
from farflung.wire.canonical import Record
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.pool import PoolSpec

FORMAT = 1
"""Number of this log format. A log with another number cannot be replayed by this code."""


class PoolOpened(Record, frozen=True, kw_only=True):
    """The first entry: what the pool is, and the secret that its tasks and draws follow from."""

    format: int = FORMAT
    spec: PoolSpec
    secret: bytes
    """Random; tasks, target lengths and draw seeds of the first epoch are keyed with it."""
    at_ms: int = 0


class Published(Record, frozen=True, kw_only=True):
    publication: Publication


class Snapshot(Record, frozen=True, kw_only=True):
    """The whole state; stands for every entry before it."""

    opened: PoolOpened
    ledger: LedgerState
    manifests: tuple[Manifest, ...]
    last_publication: Publication | None
    plans: tuple[CurriculumPlan, ...] = ()
    epochs: tuple[EpochBegan, ...] = ()


SlotEvent = (
    events.LeaseGranted
    | events.LeaseExpired
    | events.Forfeited
    | events.Submitted
    | events.VerdictRecorded
    | events.JudgingLapsed
    | events.PanelDrawn
    | events.VoteSealed
    | events.VotesOpened
    | events.VoteShown
    | events.PanelFailed
    | events.FaultRecorded
    | events.BondForfeited
    | events.RingerPlanted
    | events.RingerEnded
    | events.SlotClosed
)
JournalRecord = PoolOpened | Published | Snapshot | EpochBegan | SlotEvent

_KINDS: Mapping[str, type[JournalRecord]] = {
    "pool_opened": PoolOpened,
    "published": Published,
    SNAPSHOT: Snapshot,
    "epoch_began": EpochBegan,
    "lease_granted": events.LeaseGranted,
    "lease_expired": events.LeaseExpired,
    "forfeited": events.Forfeited,
    "submitted": events.Submitted,
    "verdict_recorded": events.VerdictRecorded,
    "judging_lapsed": events.JudgingLapsed,
    "panel_drawn": events.PanelDrawn,
    "vote_sealed": events.VoteSealed,
    "votes_opened": events.VotesOpened,
    "vote_shown": events.VoteShown,
    "panel_failed": events.PanelFailed,
    "fault_recorded": events.FaultRecorded,
    "bond_forfeited": events.BondForfeited,
    "ringer_planted": events.RingerPlanted,
    "ringer_ended": events.RingerEnded,
    "slot_closed": events.SlotClosed,
}
_KIND_OF = {record_type: kind for kind, record_type in _KINDS.items()}


def encode(record: JournalRecord) -> tuple[str, bytes]:
    """Kind and body of the entry for a record."""
    return _KIND_OF[type(record)], msgspec.json.encode(record)


def decode(entry: Entry) -> JournalRecord:
    """Raises `OurFault` when the entry is not one that this code writes."""
    record_type = _KINDS.get(entry.kind)
    if record_type is None:
        raise OurFault(
            f"event log: entry {entry.sequence} is of unknown kind {entry.kind!r}; written by a newer version?"
        )
    try:
        return msgspec.json.decode(entry.body, type=record_type)
    except msgspec.MsgspecError as error:
        raise OurFault(f"event log: entry {entry.sequence} ({entry.kind}) is damaged: {error}") from error
