"""What the coordinator shows of its journal, so that anyone can audit it: segments, and the secrets of past epochs.

An entry leaves the journal only after it was published and a snapshot stands for it. Published is published: keys are
immutable, so what an auditor has read cannot be taken back. This module does not know who reads.
"""

import logging
import secrets
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from farflung.coordinator.core import Core
from farflung.coordinator.files import Files
from farflung.coordinator.journal import PoolOpened, decode, encode
from farflung.slots.epochs import EpochBegan
from farflung.slots.events import RingerPlanted
from farflung.slots.seeds import SECRET_BYTES
from farflung.state.event_log import SNAPSHOT, Entry
from farflung.state.group_commit import GroupCommit
from farflung.wire.history import NOTHING, Line, epoch_key, epochs_of, segment_key, segments_of, write_segment

logger = logging.getLogger(__name__)

SEGMENT_EVENTS = 1000
"""Entries of a segment, which is published when it is full or an epoch is revealed."""


def begin_due_epoch(core: Core) -> None:
    """Let the next epoch begin when the current one has lasted long enough and was used."""
    epochs, table = core.state.epochs, core.table
    current = epochs.current
    is_old = core.now_ms() - current.at_ms >= core.config.epoch_s * 1000
    if table.rules.is_deterministic or not is_old or table.next_slot == current.first_slot:
        return
    core.step(
        EpochBegan(
            number=current.number + 1,
            first_slot=table.next_slot,
            secret=secrets.token_bytes(SECRET_BYTES),
            at_ms=core.now_ms(),
        )
    )


@dataclass(slots=True)
class PublicLedger:
    """Publishes what is due. One per coordinator; `next_sequence` is the first entry that is not published."""

    core: Core
    commits: GroupCommit
    files: Files
    next_sequence: int
    revealed: set[int]

    @classmethod
    async def resume(cls, core: Core, commits: GroupCommit, files: Files) -> "PublicLedger":
        """Go on behind what is in the store."""
        keys = await files.ledger_keys()
        next_sequence = max((last + 1 for _, last, _ in segments_of(keys)), default=0)
        core.first_unpublished = next_sequence
        return cls(core, commits, files, next_sequence, set(epochs_of(keys)))

    async def publish(self) -> None:
        """Write full segments, and the secrets of epochs that are over with everything before them.

        Raises:
            Transient: the store is away; nothing is lost, and the next call goes on.
        """
        notices = self.core.state.epochs.notices(self.core.state.oldest_open_slot)
        over = [notice for notice in notices if notice.secret and notice.number not in self.revealed]
        end = self.core.next_sequence
        await self.core.committed()
        while end - self.next_sequence >= SEGMENT_EVENTS or (over and end > self.next_sequence):
            await self._write_segment(end)
        for notice in over:
            await self.files.put_ledger(epoch_key(notice.number), notice.to_bytes())
            self.revealed.add(notice.number)
            logger.info("epoch %d is over: its secret is published", notice.number)

    async def _write_segment(self, end: int) -> None:
        first = self.next_sequence
        entries = await self.commits.in_log(lambda log: log.read(first, min(SEGMENT_EVENTS, end - first)))
        last = entries[-1].sequence
        await self.files.put_ledger(segment_key(entries[0].sequence, last), write_segment([*map(shown, entries)]))
        await self.commits.in_log(lambda log: log.forget(last + 1))
        self.next_sequence = self.core.first_unpublished = last + 1


def shown(entry: Entry) -> Line:
    """The entry as others may see it."""
    body = msgspec.Raw(entry.body)
    match decode(entry):
        case PoolOpened() as opened:
            body = msgspec.Raw(opened.spec.to_bytes())
        case EpochBegan() as epoch:
            body = msgspec.Raw(msgspec.json.encode({"number": epoch.number, "first_slot": epoch.first_slot}))
        case RingerPlanted() as planted:  # until it was judged, its validator is not to know
            body = msgspec.Raw(encode(replace(planted, ringer=None))[1])
        case _ if entry.kind == SNAPSHOT:
            body = NOTHING
    return Line(sequence=entry.sequence, at_ms=entry.at_ms, kind=entry.kind, record=body)
