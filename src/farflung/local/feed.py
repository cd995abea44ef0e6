"""Slots from sampler processes of our own into the trainer's inbox.

One task drives each process: grant -> work -> answer -> inbox, the next slot on its way before the answer is looked at.
A process that dies is started again and its slot is sampled again.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from farflung.errors import UserError
from farflung.local.crew import Crew
from farflung.local.intake import groups_of
from farflung.local.leases import write_local_lease
from farflung.local.messages import Broken, FromSampler, Ready, Sampled, Settings, Unworkable, Weights, Work
from farflung.local.process import SamplerDied, SamplerProcess
from farflung.local.slot_book import SlotBook, Turn
from farflung.local.tally import Tally
from farflung.rl.types import Batch
from farflung.trainer.inbox import Inbox
from farflung.trainer.samples import TrainingSet
from farflung.wire.batch import BatchItem
from farflung.wire.manifest import Publication
from farflung.wire.pool import PoolSpec

logger = logging.getLogger(__name__)

START_S = 300.0
"""From start to readiness, before a process counts as hung."""
MAX_FAILED_STARTS = 3
UNWORKABLE = "unworkable"


class LocalFeed:
    """Implements `trainer.ports.RolloutSource`; takes versions from `local.publisher`."""

    def __init__(
        self,
        pool: PoolSpec,
        inbox: Inbox,
        crew: Crew,
        settings: Sequence[Settings],
        tally: Tally,
        *,
        secret: bytes,
        stop: asyncio.Event,
    ) -> None:
        """
        Args:
            settings: of each process of the crew.
            secret: what tasks and draws follow from.
        """
        self._pool = pool
        self._pool_digest = pool.digest()
        self._inbox = inbox
        self._crew = crew
        self._memory = crew.memory
        self._settings = settings
        self._tally = tally
        self._secret = secret
        self._stop = stop
        self._publications: dict[int, Publication] = {}
        self._newest = -1
        self._task_indices: dict[int, tuple[int, ...]] = {}
        """Of the slots in work."""
        self._in_work: dict[int, Turn] = {}
        """Number of a process -> what it works on."""
        self._book = SlotBook(pool, inbox.buffer.has_seen)
        self._capacity = asyncio.Event()
        """Set when there may be a slot to grant."""
        self._finished = asyncio.Event()

    # -- the trainer's side -------------------------------------------------------------------------------------------

    async def close_absent(self) -> None:
        """Nothing: every slot that is missing will be sampled."""

    async def run(self) -> None:
        """Keep the crew at work until the run is over or asked to stop."""
        driving = [asyncio.create_task(self._drive(number)) for number in range(len(self._crew.processes))]
        endings = [asyncio.create_task(event.wait()) for event in (self._stop, self._finished)]
        try:
            done, _ = await asyncio.wait([*driving, *endings], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task  # raises what ended a driver
        finally:
            for task in [*driving, *endings]:
                task.cancel()
            await asyncio.gather(*driving, *endings, return_exceptions=True)
            await self._inbox.stop()

    def items(self, batch: Batch, training: TrainingSet) -> tuple[BatchItem, ...]:  # noqa: ARG002
        """None: there are no submissions; the buffer knows which slots made which version."""
        return ()

    def published(self, slots: Iterable[int]) -> None:
        """A version is out; its slots make room for others."""
        self._book.settle(slots)
        self._capacity.set()

    def announce(self, publication: Publication, weights: bytes, *, base: bytes | None = None) -> None:
        """A version is there to be sampled with.

        Args:
            weights: what changes from version to version.
            base: what lies below an adapter; looked at the first time only.
        """
        if base is not None:
            self._memory.lay_base(base)
        version = publication.manifest.policy_version
        in_work = {turn.policy_version for turn in self._in_work.values()}
        self._memory.write(version, weights, needed=in_work | set(self._book.needed_versions(version)))
        self._publications[version] = publication
        self._publications = {held: self._publications[held] for held in self._memory.versions}
        self._newest = max(self._newest, version)
        self._capacity.set()

    def finish(self) -> None:
        """No version follows."""
        self._finished.set()

    @property
    def num_outstanding_groups(self) -> int:
        return self._book.num_out * self._pool.groups_per_slot

    # -- the samplers' side -------------------------------------------------------------------------------------------

    async def _drive(self, number: int) -> None:
        process, failed_starts = self._crew.processes[number], 0
        while True:
            try:
                await self._ready(process, self._settings[number])
                failed_starts = 0
                await self._employ(number, process)
            except SamplerDied as death:
                process.kill()
                failed_starts += 1
                self._mourn(number, str(death), failed_starts)
                process = self._crew.replace(number)

    async def _ready(self, process: SamplerProcess, settings: Settings) -> None:
        await process.send(settings)
        answer = await process.receive(START_S)
        if isinstance(answer, Broken):
            raise UserError(answer.sentence)
        assert isinstance(answer, Ready), f"a sampler begins with {type(answer).__name__}"

    async def _employ(self, number: int, process: SamplerProcess) -> None:
        turn = await self._next_turn()
        await self._hand_out(number, process, turn)
        while True:
            answer = await process.receive(self._pool.lease_s)
            done = self._in_work.pop(number)
            ahead = self._book.grant(self._newest)
            if ahead is not None:
                await self._hand_out(number, process, ahead)
            await self._take(done, answer)
            if ahead is None:
                await self._hand_out(number, process, await self._next_turn())

    async def _next_turn(self) -> Turn:
        while (turn := self._book.grant(self._newest)) is None:
            self._capacity.clear()
            await self._capacity.wait()
        return turn

    async def _hand_out(self, number: int, process: SamplerProcess, turn: Turn) -> None:
        self._in_work[number] = turn
        publication = self._publications[turn.policy_version]
        manifest = publication.manifest
        offset, num_bytes = self._memory.where(turn.policy_version)
        lease = write_local_lease(
            self._pool, self._pool_digest, self._secret, turn, manifest.policy_digest, publication.curriculum
        )
        self._task_indices[turn.slot] = lease.task_indices
        weights = Weights(
            manifest=manifest, offset=offset, num_bytes=num_bytes, num_base_bytes=self._memory.num_base_bytes
        )
        await process.send(Work(lease=lease, weights=weights))

    async def _take(self, turn: Turn, answer: FromSampler) -> None:
        task_indices = self._task_indices.pop(turn.slot)
        match answer:
            case Sampled():
                groups = groups_of(answer, self._pool, policy_version=turn.policy_version, task_indices=task_indices)
                num_tokens = sum(answer.lengths)
                self._tally.sampled(answer, num_tokens)
                await self._inbox.admit(turn.slot, turn.policy_version, groups, num_tokens, answer.heartbeat.node)
            case Unworkable():
                logger.warning("slot %d is left out: %s", turn.slot, answer.detail)
                self._tally.closed(UNWORKABLE, self._pool.groups_per_slot)
                self._book.settle([turn.slot])
                await self._inbox.close(turn.slot, UNWORKABLE)
                self._capacity.set()
            case Broken():
                raise UserError(answer.sentence)
            case Ready():
                raise AssertionError("a sampler is ready once")

    def _mourn(self, number: int, how: str, failed_starts: int) -> None:
        """Its slot goes to whoever asks next, unless the slot or the start is what kills."""
        logger.warning("%s; starting another", how)
        turn = self._in_work.pop(number, None)
        if turn is not None and self._book.give_back(turn.slot) >= self._pool.max_attempts:
            raise UserError(
                f"slot {turn.slot} was tried {self._pool.max_attempts} times and never finished, the last time {how}: "
                f"raise pool.lease_s if a slot takes longer than {self._pool.lease_s:g} s, or see the run's logs for "
                f"what environment {self._pool.environment.name} or memory has to do with it"
            )
        if turn is None and failed_starts >= MAX_FAILED_STARTS:
            raise UserError(f"samplers do not start: {how}; the run's logs say why")
        self._capacity.set()
