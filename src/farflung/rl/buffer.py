"""The experience buffer: accepted slots wait here until the trainer takes them, in the order of their leases.

Every slot goes through this table once; its final states are told apart in `metrics`.

    slot is      event                               becomes            occupies a place
    unseen       admit                               waiting            yes
    unseen       close(reason)                       closed(reason)     no, final
    unseen       give_up(reason)                     dropped(reason)    no, final
    waiting      take: in turn and fresh             taken              yes
    waiting      take: older than max_staleness      dropped(stale)     no, final
    taken        release: its version is published   trained            no, final
    taken        discard(reason): step rolled back   dropped(reason)    no, final
    otherwise    admit, close, give_up               unchanged, counted as a duplicate

    admitted = waiting + taken + trained + dropped

*Order.* Taking what arrives first would favour short completions and fast machines, so slots are taken in slot order
within a window (`rl.order`): one that is late for longer is passed over, and taken with a later batch if it comes and
is fresh. Without a window every slot is waited for, and batches do not depend on the order of arrival at all.

*Staleness* is measured in `take`, so the time that a slot waited counts.

*Places.* Waiting and taken slots occupy one of `max_slots` places each. A full buffer refuses and the caller offers
the slot again later: that holds workers back, instead of letting what they sample grow stale here. It refuses only
while a batch is out or ready, that is while the trainer is the one to wait for. So it never refuses what the next batch
needs, and holds at most max(max_slots, window_slots + groups_per_batch) slots; without a window, also what the pool
samples while one slot is late.

*What counts* towards a batch is every group, or those that `counts` says, such as the ones with signal (dynamic
sampling, DAPO, arXiv 2503.14476): then a batch goes on filling, in slot order, until it has enough of them or
`max_slots_per_batch` slots. The bound must not exceed what the pool lets be outstanding, else a batch without signal
would wait for slots that are never leased; given-up slots hold places in the pool too, so they count towards it.

*Given-up slots.* What was rolled back or given up keeps its place in the pool until a batch record says that it was
dropped. With more than `max_unreported` such slots the pool may have no places left to fill a batch from, so `take`
gives an empty batch, whose version only reports them.

*Fixed batches* (deterministic mode, `slots_per_batch`): version v is trained on the slots [v * n, (v + 1) * n), all of
them and no others, as soon as each has been seen. Ones that were closed or given up are missing from it; when none is
left, or the batch was discarded, the version reports an empty batch. Nothing is refused: the pool bounds what is out.

Synchronous and pure: no clock, no threads, no I/O; the trainer's inbox adds waiting. Does not know submissions, files
or keys.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypedDict

from farflung.rl.order import SlotOrder
from farflung.rl.ranges import RangeSet
from farflung.rl.staleness import is_admissible
from farflung.rl.types import Batch, Entry, RolloutGroup
from farflung.wire.batch import SlotDrop

SNAPSHOT_FORMAT = 1


Counts = Callable[[RolloutGroup], bool]


def every_group(_group: RolloutGroup) -> bool:
    """What counts unless something else is said."""
    return True


class Admission(Enum):
    """What became of an offered slot."""

    ADMITTED = "admitted"
    DUPLICATE = "duplicate"
    """Seen before; nothing changed."""
    FULL = "full"
    """No place now; nothing changed. Offer it again after the trainer gave back a batch."""


class DropReason(StrEnum):
    """Why `take` gives up an accepted slot. `discard` adds reasons of its own."""

    STALE = "stale"
    FUTURE_VERSION = "future_version"
    """Sampled with a version that the trainer has not reached: it was restored to an older one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BufferParams:
    """Sizes and bounds of the buffer."""

    groups_per_batch: int
    """A batch takes whole slots until it has this many groups that count."""
    max_staleness: int
    """Versions; 0 = only rollouts of the version that is being trained."""
    max_slots: int
    """Places for waiting and taken slots."""
    window_slots: int | None
    """Later slots to be admitted before a missing one is passed over; None = wait for every slot (deterministic)."""
    max_unreported: int | None = None
    """Slots rolled back or given up that may go unreported while no batch is complete; None = any number."""
    slots_per_batch: int | None = None
    """Fixed batches of so many slots, in place of `groups_per_batch` and the window; None = whatever is in turn."""
    max_slots_per_batch: int | None = None
    """A batch is complete with so many slots, whatever counts of them; None = any number."""
    max_history: int = 64
    """Versions for which the buffer remembers what they were trained on; batch records keep the rest."""

    def __post_init__(self) -> None:
        for name, minimum in (("groups_per_batch", 1), ("max_staleness", 0), ("max_slots", 1), ("max_history", 1)):
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be >= {minimum}")
        if self.window_slots is not None and self.window_slots < 0:
            raise ValueError(f"window_slots is {self.window_slots}: it must be >= 0, or None to wait for every slot")
        if self.max_unreported is not None and self.max_unreported < 0:
            raise ValueError(f"max_unreported is {self.max_unreported}: it must be >= 0, or None for any number")
        if self.max_slots_per_batch is not None and self.max_slots_per_batch < 1:
            raise ValueError(f"max_slots_per_batch is {self.max_slots_per_batch}: it must be >= 1, or None")


class BufferSnapshot(TypedDict):
    """The ledger as JSON-able data. Waiting and taken slots count as unseen in it: they are to be admitted again."""

    format: int
    seen: list[list[int]]
    """Ranges [start, stop) of the slots in a final state."""
    closed: list[list[int]]
    trained: list[tuple[int, list[list[int]]]]
    """(version, ranges) of what the latest versions were trained on."""
    drops: list[tuple[int, str]]
    """(slot, reason) of drops that no released batch has reported."""
    counts: dict[str, int]
    next_batch_id: int


class ExperienceBuffer:
    """Slots as a ledger.

    In these examples `groups(slot, version)` builds the rollouts of a slot of one group.

    >>> params = BufferParams(groups_per_batch=2, max_staleness=1, max_slots=4, window_slots=2)
    >>> buffer = ExperienceBuffer(params)
    >>> def offer(slot, version):
    ...     return buffer.admit(slot, version, groups(slot, version), num_tokens=8, node="a").value

    Slot 0 is still out, so nothing is taken until two later ones are in:

    >>> offer(1, 0), buffer.take(0), offer(2, 0)
    ('admitted', None, 'admitted')
    >>> batch = buffer.take(0)
    >>> batch.slots
    (1, 2)

    Version 1 is published, the batch given back. The late slot is taken with the next batch, in slot order, because it
    is fresh enough; handing it in again changes nothing:

    >>> buffer.release(batch.batch_id)
    >>> offer(3, 1), offer(0, 0), offer(0, 0)
    ('admitted', 'admitted', 'duplicate')
    >>> buffer.take(1).slots
    (0, 3)

    A rejected slot is closed, so nobody waits for it. What waited too long is dropped, with its reason:

    >>> buffer.close(4, "rejected"), offer(5, 1), buffer.take(3)
    (True, 'admitted', None)
    >>> buffer.metrics()["buffer/dropped/stale"], buffer.metrics()["buffer/closed/rejected"]
    (1, 1)
    """

    def __init__(self, params: BufferParams, counts: Counts = every_group) -> None:
        """
        Args:
            counts: whether a group counts towards a batch; a function of the group alone.
        """
        self.params = params
        self._is_counted = counts
        self._num_counted: dict[int, int] = {}  # of waiting slots
        self._order = SlotOrder(params.window_slots)
        self._waiting: dict[int, Entry] = {}
        self._taken: dict[int, Batch] = {}
        self._trained: dict[int, RangeSet] = {}
        # Bounded: no version goes by without a batch, so only what was out at the last can go stale before the next.
        self._drops: list[SlotDrop] = []
        self._counts: Counter[str] = Counter()
        self._next_batch_id = 0

    # -- in: one call per slot that reached its final state in the pool ---------------------------------------------

    def admit(
        self, slot: int, policy_version: int, groups: Sequence[RolloutGroup], num_tokens: int, node: str
    ) -> Admission:
        """Offer an accepted slot, whole.

        Args:
            slot: its number.
            policy_version: the one version that sampled all of it.
            groups: at least one; with or without signal.
            num_tokens: completion tokens.
            node: who sampled it.

        Raises:
            ValueError: a negative slot, no groups, or groups of another slot or version.
        """
        entry = Entry(slot=slot, policy_version=policy_version, groups=tuple(groups), num_tokens=num_tokens, node=node)
        if slot in self._order:
            self._counts["duplicates"] += 1
            return Admission.DUPLICATE
        if self.is_full:
            return Admission.FULL
        self._order.admit(slot)
        self._waiting[slot] = entry
        self._num_counted[slot] = sum(map(self._is_counted, groups))
        self._counts["admitted"] += 1
        return Admission.ADMITTED

    def close(self, slot: int, reason: str) -> bool:
        """A slot ended otherwise (rejected, expired, forfeited): nobody waits for it any more. False = seen before."""
        if slot in self._order:
            self._counts["duplicates"] += 1
            return False
        self._order.close(slot)
        self._counts[f"closed/{reason}"] += 1
        return True

    def give_up(self, slot: int, reason: str) -> bool:
        """An accepted slot that cannot be used, admitted and dropped at once. False = seen before."""
        if slot in self._order:
            self._counts["duplicates"] += 1
            return False
        self._order.close(slot)  # like rejected work, it does not move the window
        self._counts["admitted"] += 1
        self._drop(slot, reason)
        return True

    # -- out: the trainer's side ------------------------------------------------------------------------------------

    def take(self, current_version: int) -> Batch | None:
        """The next batch for the trainer at `current_version`, or None if it is not complete yet.

        Drops what is too old first, whether or not a batch comes of it. Several batches may be out at once. A batch is
        empty when it is only there to report drops.
        """
        self._drop_inadmissible(current_version)
        entries = self._ready_entries(current_version)
        if entries is None:
            return None
        for entry in entries:
            self._no_longer_waits(entry.slot)
        batch = Batch(
            batch_id=self._next_batch_id,
            policy_version=current_version,
            entries=tuple(entries),
            drops=tuple(self._drops),
        )
        self._next_batch_id += 1
        self._drops = []
        self._taken[batch.batch_id] = batch
        return batch

    def release(self, batch_id: int) -> None:
        """The version made from the batch is published: its slots are trained, for good.

        Raises:
            ValueError: no such batch is out.
        """
        batch = self._give_back(batch_id)
        self._trained[batch.policy_version + 1] = RangeSet(batch.slots)
        while len(self._trained) > self.params.max_history:
            del self._trained[min(self._trained)]
        self._counts["trained"] += len(batch.entries)
        self._counts["trained_tokens"] += batch.num_tokens

    def discard(self, batch_id: int, reason: str) -> None:
        """The step was rolled back, nothing was published: its slots are dropped. Raises as `release`."""
        batch = self._give_back(batch_id)
        self._drops[:0] = batch.drops  # the batch record that would have reported them was never written
        for slot in batch.slots:
            self._drop(slot, reason)

    def _give_back(self, batch_id: int) -> Batch:
        if batch_id not in self._taken:
            raise ValueError(f"batch {batch_id} is not out: out are {sorted(self._taken)}")
        batch = self._taken.pop(batch_id)
        self._order.forget_below(min([self.cursor, *self.pending_slots()]))
        return batch

    def _drop_inadmissible(self, current_version: int) -> None:
        for slot, entry in sorted(self._waiting.items()):
            if not is_admissible(current_version, entry.policy_version, self.params.max_staleness):
                self._no_longer_waits(slot)
                is_future = entry.policy_version > current_version
                self._drop(slot, DropReason.FUTURE_VERSION if is_future else DropReason.STALE)

    def _no_longer_waits(self, slot: int) -> None:
        del self._waiting[slot], self._num_counted[slot]

    def _drop(self, slot: int, reason: str) -> None:
        self._drops.append(SlotDrop(slot=slot, reason=reason))
        self._counts[f"dropped/{reason}"] += 1

    def _ready_entries(self, current_version: int) -> list[Entry] | None:
        """What the next batch is made of, nothing if it only reports drops; None if it is not complete yet."""
        if self.params.slots_per_batch is not None:
            return self._fixed_entries(current_version, self.params.slots_per_batch)
        entries = self._next_entries()
        return entries if entries or self._must_report else None

    def _next_entries(self) -> list[Entry]:
        """Waiting entries that make the next batch, in slot order; empty if it is not complete yet."""
        entries: list[Entry] = []
        num_counted, most = 0, self.params.max_slots_per_batch
        for slot in sorted(self._waiting):
            if not self._order.is_in_turn(slot):
                break
            entries.append(self._waiting[slot])
            num_counted += self._num_counted[slot]
            is_at_bound = most is not None and len(entries) >= most - self._num_given_up
            if num_counted >= self.params.groups_per_batch or is_at_bound:
                return entries
        return []

    def _fixed_entries(self, current_version: int, num_slots: int) -> list[Entry] | None:
        """What there is of the version's own slots; None while one of them has not been seen."""
        slots = range(current_version * num_slots, (current_version + 1) * num_slots)
        if self._taken or not all(slot in self._order for slot in slots):
            return None
        return [self._waiting[slot] for slot in slots if slot in self._waiting]

    # -- views ------------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """No place for another slot, and the trainer is the one to free one."""
        if self.num_occupied < self.params.max_slots or self.params.slots_per_batch is not None:
            return False
        return bool(self._taken) or bool(self._next_entries())

    @property
    def _must_report(self) -> bool:
        return self.params.max_unreported is not None and self._num_given_up > self.params.max_unreported

    @property
    def _num_given_up(self) -> int:
        """Slots that hold a place in the pool for nothing. Of stale ones it has taken the places back already."""
        return sum(drop.reason != DropReason.STALE for drop in self._drops)

    @property
    def num_occupied(self) -> int:
        return len(self._waiting) + sum(len(batch.entries) for batch in self._taken.values())

    @property
    def cursor(self) -> int:
        """The first slot that has not been seen."""
        return self._order.first_gap

    def has_seen(self, slot: int) -> bool:
        """True if admitting or closing it would be a duplicate. Ask before downloading."""
        return slot in self._order

    def pending_slots(self) -> tuple[int, ...]:
        """Admitted slots without a final state, waiting or taken, ascending."""
        taken = [slot for batch in self._taken.values() for slot in batch.slots]
        return tuple(sorted([*self._waiting, *taken]))

    def trained_in(self, policy_version: int) -> list[list[int]]:
        """Ranges [start, stop) of the slots that made this version; empty if none did, or too long ago."""
        return self._trained[policy_version].pairs() if policy_version in self._trained else []

    def metrics(self) -> dict[str, int]:
        """What is inside now, and how every slot so far ended."""
        waiting = self._waiting.values()
        return {
            "buffer/waiting_slots": len(waiting),
            "buffer/waiting_groups": sum(len(entry.groups) for entry in waiting),
            "buffer/waiting_tokens": sum(entry.num_tokens for entry in waiting),
            "buffer/taken_slots": self.num_occupied - len(waiting),
            "buffer/cursor": self.cursor,
            **{f"buffer/{name}": count for name, count in sorted(self._counts.items())},
        }

    # -- checkpoint -------------------------------------------------------------------------------------------------

    def snapshot(self) -> BufferSnapshot:
        """The ledger for a checkpoint. Take it after `release`, so that it agrees with the weights."""
        pending = self.pending_slots()
        unreported = [*(drop for batch in self._taken.values() for drop in batch.drops), *self._drops]
        counts = dict(self._counts)
        counts["admitted"] = self._counts["admitted"] - len(pending)
        return BufferSnapshot(
            format=SNAPSHOT_FORMAT,
            seen=self._order.seen_without(pending),
            closed=self._order.closed,
            trained=[(version, slots.pairs()) for version, slots in self._trained.items()],
            drops=[(drop.slot, drop.reason) for drop in unreported],
            counts=counts,
            next_batch_id=self._next_batch_id,
        )

    @classmethod
    def restore(
        cls, params: BufferParams, snapshot: BufferSnapshot, counts: Counts = every_group
    ) -> "ExperienceBuffer":
        """A buffer with the ledger of `snapshot` and nothing waiting.

        Raises:
            ValueError: another format, or broken ranges.
        """
        if snapshot["format"] != SNAPSHOT_FORMAT:
            raise ValueError(
                f"the buffer snapshot has format {snapshot['format']}: this version reads {SNAPSHOT_FORMAT}"
            )
        buffer = cls(params, counts)
        buffer._order = SlotOrder.restore(params.window_slots, snapshot["seen"], snapshot["closed"])
        buffer._trained = {version: RangeSet.from_pairs(pairs) for version, pairs in snapshot["trained"]}
        buffer._drops = [SlotDrop(slot=slot, reason=reason) for slot, reason in snapshot["drops"]]
        buffer._counts = Counter(snapshot["counts"])
        buffer._next_batch_id = snapshot["next_batch_id"]
        return buffer
