"""Everything that the coordinator must not forget: a function of the journal, stepped one record at a time.

This module does not know time, sockets, files or who asks; it neither decides nor waits.
"""

from collections.abc import Iterable, Iterator

from farflung.coordinator.journal import FORMAT, JournalRecord, PoolOpened, Published, Snapshot
from farflung.errors import OurFault, UserError
from farflung.slots import events
from farflung.slots.epochs import EpochBegan, EpochBook
from farflung.slots.ledger import Instruction, Ledger, VersionRetired
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.manifest import Publication
from farflung.wire.pool import PoolSpec


class PoolState:
    """Pool rules, epochs, slots and published versions.

    Args:
        start: the journal's first record.
    """

    def __init__(self, start: PoolOpened | Snapshot) -> None:
        snapshot = start if isinstance(start, Snapshot) else None
        self.opened = start if isinstance(start, PoolOpened) else start.opened
        if self.opened.format != FORMAT:
            raise UserError(f"the event log has format {self.opened.format}, this version of farflung reads {FORMAT}")
        self.rules = self.opened.spec
        self.pool_digest = self.rules.digest()
        first_epoch = EpochBegan(number=0, first_slot=0, secret=self.opened.secret, at_ms=self.opened.at_ms)
        self.epochs = EpochBook(self.pool_digest, (snapshot.epochs if snapshot else ()) or (first_epoch,))
        self.ledger = Ledger(self.rules, snapshot.ledger if snapshot else None)
        self.manifests = {manifest.policy_version: manifest for manifest in (snapshot.manifests if snapshot else ())}
        """Version -> manifest, for versions that may still be fetched, and those that they are made from by patches."""
        self.plans = {plan.digest(): plan for plan in (snapshot.plans if snapshot else ())}
        """Digest -> curriculum plan, for those that a version which may still be fetched names."""
        self.last_publication = snapshot.last_publication if snapshot else None

    def apply(self, record: JournalRecord) -> list[Instruction]:
        """Step on one record after the first.

        Raises:
            IllegalEvent: it cannot follow; nothing was changed.
        """
        match record:
            case PoolOpened() | Snapshot():
                raise OurFault(f"a {type(record).__name__} record in the middle of the journal")
            case EpochBegan():
                table = self.ledger.table
                self.epochs.begin(record, table.next_slot)
                self.epochs.forget(min((slot.slot for slot in table.slots()), default=table.next_slot))
                return []
            case Published():
                instructions = self._publish(record.publication)
            case _:
                instructions = self.ledger.apply(record)
        if any(isinstance(instruction, VersionRetired) for instruction in instructions):
            self._forget_versions()
        return instructions

    @property
    def oldest_open_slot(self) -> int:
        """Every slot before it has ended."""
        table = self.ledger.table
        return min(table.open_slots(), default=table.next_slot)

    def _forget_versions(self) -> None:
        """Those that nobody fetches any more, nor needs for the patches on them."""
        fetchable = self.ledger.table.versions
        needed = {version for start in fetchable for version in self._chain_to(start)}
        self.manifests = {version: manifest for version, manifest in self.manifests.items() if version in needed}
        named = {manifest.curriculum_digest for manifest in self.manifests.values()}
        self.plans = {digest: plan for digest, plan in self.plans.items() if digest in named}

    def _chain_to(self, version: int) -> Iterator[int]:
        """A version, and those before it down to a whole one that it can be made from by patches."""
        while (manifest := self.manifests.get(version)) is not None:
            yield version
            if manifest.kind != "patch":
                return
            version -= 1

    def plan_of(self, version: int) -> CurriculumPlan | None:
        """The plan that tasks of this version's slots follow from; None if it has none, or is not kept any more."""
        manifest = self.manifests.get(version)
        return self.plans[manifest.curriculum_digest] if manifest and manifest.curriculum_digest else None

    def snapshot(self) -> Snapshot:
        return Snapshot(
            opened=self.opened,
            ledger=self.ledger.state,
            manifests=tuple(self.manifests.values()),
            last_publication=self.last_publication,
            plans=tuple(self.plans.values()),
            epochs=tuple(self.epochs.began),
        )

    def chunks_in_use(self) -> set[str]:
        """sha256 of every chunk that a kept version promises."""
        return {
            chunk.sha256
            for manifest in self.manifests.values()
            for file in manifest.promised_files
            for chunk in file.chunks
        }

    def _publish(self, publication: Publication) -> list[Instruction]:
        manifest = publication.manifest
        self.manifests[manifest.policy_version] = manifest
        if publication.curriculum is not None:
            self.plans[publication.curriculum.digest()] = publication.curriculum
        instructions: list[Instruction] = []
        if publication.batch is not None:
            instructions += self.ledger.apply(events.BatchRecorded(batch=publication.batch))
        instructions += self.ledger.apply(
            events.VersionPublished(policy_version=manifest.policy_version, policy_digest=manifest.policy_digest)
        )
        self.last_publication = publication
        return instructions


def restore(records: Iterable[JournalRecord]) -> PoolState | None:
    """The state after all records; None for an empty journal."""
    iterator = iter(records)
    first = next(iterator, None)
    if first is None:
        return None
    if not isinstance(first, PoolOpened | Snapshot):
        raise OurFault(f"the journal starts with a {type(first).__name__} record")
    state = PoolState(first)
    for record in iterator:
        state.apply(record)
    return state


def check_same_pool(found: PoolSpec, asked: PoolSpec) -> None:
    """Raises `UserError` naming the rules that differ between a journal and the configuration."""
    if found == asked:
        return
    names = [name for name in PoolSpec.__struct_fields__ if getattr(found, name) != getattr(asked, name)]
    first = names[0]
    raise UserError(
        f"this run was started with other pool rules ({', '.join(names)}): {first} was {getattr(found, first)!r} "
        f"and is {getattr(asked, first)!r} now; use the old value, or another run folder"
    )
