"""What every desk of the coordinator shares: the state, and the one way to change it.

    step(record)      the ledger takes the record, the journal gets it, whoever waits for it is woken; synchronous
    await committed() everything stepped so far is on disk: now it may be acknowledged, or shown

A step is decided and taken without an `await` in between, so decisions never see half a step. This module does not know
routes, or what the records are for.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from farflung.api.errors import RefusalReason, Refused
from farflung.api.routes import MAX_CHUNK_BYTES, evidence_key
from farflung.api.server.limits import SHARE, ByteBudget
from farflung.coordinator.config import CoordinatorConfig
from farflung.coordinator.files import Files
from farflung.coordinator.journal import JournalRecord, encode
from farflung.coordinator.nodes import NodeBook
from farflung.coordinator.pool_state import PoolState
from farflung.coordinator.signals import Switchboard, Topic
from farflung.errors import OurFault, PeerFault
from farflung.identity.keys import NodeKey
from farflung.identity.signing import Signable, Signed, check_signer, sign
from farflung.slots import ledger
from farflung.slots.events import FaultRecorded, Forfeited, LeaseExpired
from farflung.slots.leases import write_ticket
from farflung.slots.lifecycle import Slot
from farflung.slots.table import SlotTable
from farflung.state.group_commit import GroupCommit
from farflung.wire.lease import Lease
from farflung.wire.node import Heartbeat
from farflung.wire.panel import Fault, FaultKind
from farflung.wire.submission import UploadTicket
from farflung.wire.verdict import SlotState

Answer = TypeVar("Answer")

_TOPICS = {
    ledger.CapacityFreed: Topic.CAPACITY,
    ledger.JudgingNeeded: Topic.JUDGING,
    ledger.OutcomeReady: Topic.OUTCOMES,
}


class Core:
    """
    Args:
        state: as the journal left it.
        key: the coordinator's own, for pools that are not open.
        num_since_snapshot: entries of the journal since its last snapshot.
        now_ms: the pool's time (`coordinator.clock`).
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        state: PoolState,
        commits: GroupCommit,
        files: Files,
        *,
        key: NodeKey | None = None,
        num_since_snapshot: int = 0,
        now_ms: Callable[[], int],
    ) -> None:
        if key is None and state.rules.trust != "open":
            raise OurFault(f"pool {state.rules.name} is {state.rules.trust}, and its coordinator has no key")
        self.config = config
        self.state = state
        self._key = key
        self.files = files
        self.now_ms = now_ms
        self.nodes = NodeBook(
            started_ms=now_ms(),
            silent_after_ms=round(config.silent_after_s * 1000),
            forget_after_ms=round(config.forget_after_s * 1000),
        )
        self.switchboard = Switchboard()
        self.is_finished = False
        """The trainer said that the run is over. Not kept across a restart."""
        self.first_unpublished = 0
        """Sequence of the first entry that the public ledger does not show yet."""
        self.disguises: dict[str, Heartbeat] = {}
        """What the status tells of workers that planted files came from (`coordinator.ringers`)."""
        self.garbage: deque[str] = deque()
        """Keys of objects that nobody needs once what is stepped is committed."""
        self.has_unused_chunks = True
        """Whether it is worth looking for chunks that no fetchable version has."""
        self.has_old_files = True
        """Whether it is worth looking for files and evidence that are old enough to go."""
        self.num_files_removed = 0
        """Of those."""
        most_bytes = max(config.max_bytes_in_flight, SHARE * max(state.rules.max_file_bytes, MAX_CHUNK_BYTES))
        self.incoming = ByteBudget(most_bytes)
        """Uploads under way."""
        self.outgoing = ByteBudget(most_bytes)
        """Chunks under way."""
        self._commits = commits
        self._num_since_snapshot = num_since_snapshot

    @property
    def table(self) -> SlotTable:
        return self.state.ledger.table

    @property
    def next_sequence(self) -> int:
        """Of the record that is stepped next."""
        return self._commits.next_sequence

    def step(self, record: JournalRecord) -> None:
        """Take one record.

        Raises:
            IllegalEvent: it cannot happen now; nothing was changed.
            OurFault: the journal failed earlier.
        """
        self._commits.raise_if_failed()
        lost = self.table.slot(record.slot) if isinstance(record, LeaseExpired | Forfeited) else None
        instructions = self.state.apply(record)
        if lost is not None:
            self.garbage.append(self.ticket(lost.lease).key)
        self._journal(record)
        self._num_since_snapshot += 1
        if self._num_since_snapshot >= self.config.snapshot_every_events:
            self._journal(self.state.snapshot())
            self._num_since_snapshot = 0
        for instruction in instructions:
            self._execute(instruction)
        if lost is not None:
            self._check_budget(lost)

    async def committed(self) -> None:
        """Raises `OurFault` when the journal failed."""
        await self._commits.committed()

    async def poll(self, topic: Topic, ask: Callable[[], Answer | None], wait_s: float) -> Answer | None:
        """Ask, and ask again when the topic rings, until there is an answer, time is up or the run is over.

        What is returned rests on committed state.
        """
        answer = await self.switchboard.wait_for(topic, ask, wait_s)
        await self.committed()
        return answer

    def finish(self) -> None:
        """The run is over: nobody waits for anything any more."""
        self.is_finished = True
        self.switchboard.close()

    def ticket(self, lease: Lease) -> UploadTicket:
        return write_ticket(self.state.rules, self.state.epochs.of_slot(lease.slot).secret, lease)

    @property
    def is_open(self) -> bool:
        """Whether nodes are who they say they are."""
        return self.state.rules.trust == "open"

    def signed(self, record: Signable) -> Signable:
        """With the coordinator's signature, in pools where that is asked for."""
        return record if self.is_open or self._key is None else sign(record, self._key)

    def check_signed(self, record: Signed, node: str) -> None:
        """Refuse what a node answers for and did not sign, unless the pool is open."""
        if self.is_open:
            return
        try:
            check_signer(record, node)
        except PeerFault as fault:
            raise Refused(RefusalReason.BAD_SIGNATURE, fault.detail) from fault

    def files_in_use(self) -> set[str]:
        """Keys of rollout files and evidence of slots that are not forgotten."""
        return {key for slot in self.table.slots() for key in self._files_of(slot)}

    def _files_of(self, slot: Slot) -> Iterator[str]:
        if slot.state is SlotState.LEASED:
            yield self.ticket(slot.lease).key
        if slot.submission is not None:
            yield slot.submission.file_key
        for vote in () if slot.panel is None else slot.panel.votes.values():
            yield evidence_key(vote.evidence_digest)
        if slot.verdict is not None:
            yield evidence_key(slot.verdict.evidence_digest)

    def _check_budget(self, lost: Slot) -> None:
        """Record a fault of liveness when the node of a lost lease has lost too many (`slots.standing`)."""
        node, rules = lost.lease.node, self.state.rules
        standing = self.state.ledger.standings.of(node)
        if standing.is_over_budget(rules.checks):
            fault = Fault(
                pool_digest=self.state.pool_digest,
                node=node,
                kind=FaultKind.TOO_MANY_FORFEITS,
                slot=lost.slot,
                detail=f"{standing.num_lost} of {standing.num_leases} leases lost",
            )
            self.step(FaultRecorded(fault=fault, at_ms=self.now_ms()))

    def _journal(self, record: JournalRecord) -> None:
        kind, body = encode(record)
        self._commits.enqueue(kind, body, self.now_ms())

    def _execute(self, instruction: ledger.Instruction) -> None:
        match instruction:
            case ledger.VersionRetired():
                self.has_unused_chunks = self.has_old_files = True
            case ledger.SlotForgotten():
                self.has_old_files = True
            case _:
                self.switchboard.ring(_TOPICS[type(instruction)])
