"""Planted files: now and then a validator gets one that it has to reject, and cannot tell from the others.

    gave      told what was given to whom; decides at a secret rate that the next one is planted
    plant     makes what was decided on, from an accepted file that this validator has not seen and nobody published
    find      hands it out like any submission: a node of its own, a lease, signatures, a file
    ended     the verdict: nothing is trained on, nobody is paid, no worker loses anything

What is planted is committed to in the public ledger when it is made and shown when it was judged, so that nobody can
call a file planted afterwards. What is under way is forgotten by a restart. This module does not know how files are
spoiled (`validation.ringers`) or votes counted.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import SystemRandom

from msgspec.structs import replace

from farflung.coordinator.core import Core
from farflung.coordinator.faults import record_fault
from farflung.coordinator.signals import Topic
from farflung.errors import PeerFault
from farflung.identity.keys import NodeKey, new_key
from farflung.identity.signing import sign
from farflung.slots.events import RingerEnded, RingerPlanted
from farflung.slots.leases import write_ticket
from farflung.slots.lifecycle import Slot
from farflung.slots.seeds import draw_seed
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.node import Role
from farflung.wire.panel import Fault, Ringer, RingerKind
from farflung.wire.verdict import EvidenceBundle, SlotState, Verdict

logger = logging.getLogger(__name__)

MAX_WANTED = 16
MAX_REMEMBERED = 4096
"""Submissions of which it is known who saw them, and planted ones that ended."""
MAX_TRIES = 20
"""Looks for something to make a file from, a sweep apart, before it is left."""


@dataclass(kw_only=True, slots=True)
class Planted:
    """One that is under way."""

    ringer: Ringer
    claims: tuple[float, ...]
    """Rewards that it claims, where these are the trap."""
    deadline_ms: int
    sealed: str = ""
    """The commitment to a vote on it."""


class RingerDesk:
    """
    Args:
        random: uniform in [0, 1), which nobody may foresee; None = the system's.
    """

    def __init__(self, core: Core, random: Callable[[], float] | None = None) -> None:
        self._core = core
        self._random = random or SystemRandom().random
        rules = core.state.rules
        self._is_used = core.config.ringer_rate > 0 and not core.is_open and not rules.is_deterministic
        self._wanted: deque[tuple[str, int]] = deque(maxlen=MAX_WANTED)
        self._under_way: dict[str, Planted] = {}  # by digest of the submission
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._seen_by: OrderedDict[str, set[str]] = OrderedDict()  # digest of a real submission -> validators

    def gave(self, validator: str, digests: Collection[str]) -> None:
        """These real submissions were given to a validator."""
        for digest in digests:
            if validator in self._seen_by.setdefault(digest, set()):
                continue
            self._seen_by[digest].add(validator)
            if self._is_used and self._random() < self._core.config.ringer_rate:
                self._wanted.append((validator, MAX_TRIES))
        _keep_newest(self._seen_by)

    def find(self, validator: str, held: Collection[str]) -> list[Planted]:
        return [
            planted
            for digest, planted in self._under_way.items()
            if planted.ringer.validator == validator and not planted.sealed and digest not in held
        ]

    def to_show(self, validator: str, held: Collection[str]) -> list[str]:
        """Of those that it has committed to."""
        return [
            digest
            for digest, planted in self._under_way.items()
            if planted.ringer.validator == validator and planted.sealed and digest in held
        ]

    def of(self, digest: str) -> Planted | None:
        return self._under_way.get(digest)

    def has_ended(self, digest: str) -> bool:
        return digest in self._ended

    def ended(self, planted: Planted, verdict: Verdict, evidence: EvidenceBundle) -> None:
        """Note what the validator said, and what follows from it."""
        from farflung.validation.ringers import ringer_fault  # brings pyarrow

        ringer = planted.ringer
        self._end(ringer, verdict)
        kind = ringer_fault(ringer, verdict, evidence.rewards, planted.claims)
        if kind is not None:
            record_fault(
                self._core,
                Fault(
                    pool_digest=self._core.state.pool_digest,
                    node=verdict.validator,
                    kind=kind,
                    slot=ringer.lease.slot,
                    submission_digest=verdict.submission_digest,
                    verdict=verdict,
                    detail=f"planted: {ringer.kind}",
                ),
            )

    async def plant(self) -> None:
        """Make what was decided on. Raises `Transient` when the store is away."""
        self._drop_overdue()
        for _ in range(len(self._wanted)):
            validator, num_tries = self._wanted.popleft()
            source = self._source_for(validator)
            if source is not None:
                await self._plant(validator, source)
            elif num_tries > 1:
                self._wanted.append((validator, num_tries - 1))

    def _source_for(self, validator: str) -> Slot | None:
        """A fresh accepted slot that this validator has not seen, unless it is the only one there is."""
        core = self._core
        is_alone = core.nodes.alive_validators(core.now_ms()) <= {validator}
        found = [
            slot
            for slot in core.table.slots()
            if slot.state is SlotState.ACCEPTED
            and core.table.newest - slot.policy_version < max(1, core.state.rules.max_staleness)
            and slot.receipt is not None
            and slot.receipt.sequence >= core.first_unpublished
            and (is_alone or validator not in self._seen_by.get(slot.receipt.submission_digest, {validator}))
        ]
        return found[int(self._random() * len(found))] if found else None

    async def _plant(self, validator: str, source: Slot) -> None:
        import numpy as np

        from farflung.validation.ringers import kinds_for, spoiled_file  # brings pyarrow, which others do without

        core, submission = self._core, source.submission
        assert submission is not None, "an accepted slot has one"
        kinds = kinds_for(core.state.rules.proofs is not None)
        kind = kinds[int(self._random() * len(kinds))]
        rng = np.random.default_rng(int(self._random() * 2**53))
        try:
            original = await core.files.get(submission.file_key, core.state.rules.max_file_bytes)
            data, claims = await asyncio.to_thread(spoiled_file, original, kind, core.state.pool_digest, rng)
        except (KeyError, PeerFault) as error:
            logger.info("nothing can be planted from slot %d: %s", source.slot, error)
            return
        if kind is RingerKind.TOKENS and data == original:
            return  # every rollout is one token, or all are the same
        key = new_key()
        lease = self._lease(source.lease, kind, key.address)
        ticket = write_ticket(core.state.rules, core.state.epochs.of_slot(source.slot).secret, lease)
        await core.files.put_upload(ticket.key, data)
        core.files.forget_upload(ticket.key)
        made = replace(
            submission,
            node=key.address,
            file_key=ticket.key,
            file_digest=sha256_hex(data),
            file_bytes=len(data),
            signature="",
        )
        ringer = Ringer(
            kind=kind,
            validator=validator,
            submission=sign(made, key),
            lease=lease,
            source_digest=submission.digest(),
        )
        self._disguise(submission.node, key)
        now_ms = core.now_ms()
        core.step(RingerPlanted(ringer_digest=ringer.digest(), at_ms=now_ms, ringer=ringer))
        deadline_ms = now_ms + round(core.config.judge_s * 1000)
        self._under_way[made.digest()] = Planted(ringer=ringer, claims=tuple(claims), deadline_ms=deadline_ms)
        core.switchboard.ring(Topic.JUDGING)

    def _lease(self, source: Lease, kind: RingerKind, node: str) -> Lease:
        """The source's, for another node; its draws and tasks are that node's or not."""
        rules = self._core.state.rules
        changed = replace(source, node=node, signature="")
        if kind in (RingerKind.OTHER_DRAWS, RingerKind.OTHER_SLOT):
            secret = self._core.state.epochs.of_slot(source.slot).secret
            seed = draw_seed(secret, source.policy_digest, source.slot, node, source.attempt).hex()
            changed = replace(changed, draw_seed=seed)
        if kind is RingerKind.OTHER_SLOT:
            tasks = tuple((index + 1) % rules.environment.num_tasks for index in source.task_indices)
            changed = replace(changed, task_indices=tasks)
        return self._core.signed(changed)

    def _disguise(self, source_node: str, key: NodeKey) -> None:
        """Whoever looks the node up among those that are there finds it."""
        heartbeat = self._core.nodes.heartbeat_of(Role.WORKER, source_node)
        if heartbeat is not None:
            self._core.disguises[key.address] = replace(heartbeat, node=key.address)
        while len(self._core.disguises) > MAX_WANTED:
            del self._core.disguises[next(iter(self._core.disguises))]

    def _drop_overdue(self) -> None:
        now_ms = self._core.now_ms()
        for planted in [each for each in self._under_way.values() if each.deadline_ms <= now_ms]:
            self._end(planted.ringer, None)

    def _end(self, ringer: Ringer, verdict: Verdict | None) -> None:
        digest = ringer.submission.digest()
        del self._under_way[digest]
        self._ended[digest] = None
        _keep_newest(self._ended)
        self._core.step(RingerEnded(ringer=ringer, verdict=verdict, at_ms=self._core.now_ms()))


def _keep_newest(book: "OrderedDict[str, set[str]] | OrderedDict[str, None]") -> None:
    while len(book) > MAX_REMEMBERED:
        book.popitem(last=False)
