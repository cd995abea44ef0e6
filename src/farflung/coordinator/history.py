"""A pool's public ledger, read back: rules, events and plans, for an audit.

Lines come from strangers as well as from one's own journal: what is not a record of the kind that a line says, or not
in sequence, is a `PeerFault`. This module does not know where lines come from or what is right (`slots.audit`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from farflung.coordinator.journal import PoolOpened, Published, decode
from farflung.errors import OurFault, PeerFault
from farflung.slots import events
from farflung.slots.epochs import EpochBegan
from farflung.slots.events import Event
from farflung.state.event_log import Entry
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.history import BAD_SEGMENT, Line
from farflung.wire.manifest import Publication
from farflung.wire.pool import PoolSpec

_OPENED, _EPOCH_BEGAN = "pool_opened", "epoch_began"


@dataclass(kw_only=True)
class History:
    """Everything that happened, from the first entry on."""

    rules: PoolSpec
    events: list[tuple[int, Event]] = field(default_factory=list)
    """(sequence of its entry, event); a publication is two events."""
    publications: list[Publication] = field(default_factory=list)
    num_entries: int = 1

    @property
    def plans(self) -> dict[str, CurriculumPlan]:
        """By digest."""
        found = (publication.curriculum for publication in self.publications)
        return {plan.digest(): plan for plan in found if plan is not None}

    @property
    def plan_of_version(self) -> dict[int, str]:
        """Version -> digest of its plan, empty if it has none."""
        manifests = (publication.manifest for publication in self.publications)
        return {manifest.policy_version: manifest.curriculum_digest for manifest in manifests}


def read_history(lines: Iterable[Line]) -> History:
    """Raises `PeerFault` for lines that are no ledger, or not all of one."""
    rest = iter(lines)
    first = next(rest, None)
    if first is None or first.sequence != 0 or first.kind != _OPENED:
        raise PeerFault(BAD_SEGMENT, "it does not begin with the rules of a pool: the first segment is missing")
    history = History(rules=PoolSpec.from_bytes(bytes(first.record)))
    for line in rest:
        if line.sequence != history.num_entries:
            raise PeerFault(BAD_SEGMENT, f"entry {history.num_entries} is missing, {line.sequence} follows")
        history.num_entries += 1
        history.events += ((line.sequence, event) for event in _events_of(line, history))
    return history


def _events_of(line: Line, history: History) -> Iterator[Event]:
    if not line.has_record or line.kind == _EPOCH_BEGAN:
        return
    try:
        record = decode(Entry(sequence=line.sequence, at_ms=line.at_ms, kind=line.kind, body=bytes(line.record)))
    except (OurFault, msgspec.MsgspecError) as error:
        raise PeerFault(BAD_SEGMENT, str(error)) from error
    match record:
        case Published(publication=publication):
            history.publications.append(publication)
            if publication.batch is not None:
                yield events.BatchRecorded(batch=publication.batch)
            manifest = publication.manifest
            yield events.VersionPublished(policy_version=manifest.policy_version, policy_digest=manifest.policy_digest)
        case PoolOpened() | EpochBegan():
            raise PeerFault(BAD_SEGMENT, f"entry {line.sequence} is of kind {line.kind}, which has no place there")
        case _:
            yield record  # type: ignore[misc]  # a snapshot has no record in a ledger
