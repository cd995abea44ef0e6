"""The experience buffer with waiting: producers wait for a place, the trainer waits for a batch.

One condition guards every wait; whatever may let somebody else go on notifies all. All rules are in `rl.buffer`. Runs
on one event loop; the buffer is changed only under the condition.
"""

import asyncio
from collections.abc import Sequence

from farflung.rl.buffer import Admission, ExperienceBuffer
from farflung.rl.types import Batch, RolloutGroup


class Inbox:
    """Between the feed of accepted slots and the trainer's loop."""

    def __init__(self, buffer: ExperienceBuffer) -> None:
        self.buffer = buffer
        """Read it freely (`metrics`, `has_seen`, `snapshot`); change it only through the inbox."""
        self._changed = asyncio.Condition()
        self._stopped = False

    async def admit(
        self, slot: int, policy_version: int, groups: Sequence[RolloutGroup], num_tokens: int, node: str
    ) -> Admission:
        """Offer a slot and wait for a place. FULL only after `stop`: it was not admitted and is not lost."""
        async with self._changed:
            admission = self.buffer.admit(slot, policy_version, groups, num_tokens, node)
            while admission is Admission.FULL and not self._stopped:
                await self._changed.wait()
                admission = self.buffer.admit(slot, policy_version, groups, num_tokens, node)
            self._changed.notify_all()
            return admission

    async def close(self, slot: int, reason: str) -> bool:
        """A slot ended without being accepted; False = seen before."""
        async with self._changed:
            self._changed.notify_all()
            return self.buffer.close(slot, reason)

    async def give_up(self, slot: int, reason: str) -> bool:
        """An accepted slot cannot be used; False = seen before."""
        async with self._changed:
            self._changed.notify_all()
            return self.buffer.give_up(slot, reason)

    async def take(self, current_version: int) -> Batch | None:
        """Wait for the next batch; None after `stop`."""
        async with self._changed:
            while not self._stopped:
                num_before = self.buffer.num_occupied
                batch = self.buffer.take(current_version)
                if self.buffer.num_occupied < num_before:  # stale slots left their places
                    self._changed.notify_all()
                if batch is not None:
                    return batch
                await self._changed.wait()
            return None

    async def release(self, batch_id: int) -> None:
        """The batch's version is published."""
        async with self._changed:
            self.buffer.release(batch_id)
            self._changed.notify_all()

    async def discard(self, batch_id: int, reason: str) -> None:
        """The batch's step was rolled back."""
        async with self._changed:
            self.buffer.discard(batch_id, reason)
            self._changed.notify_all()

    async def stop(self) -> None:
        """Let everybody who waits go. What is in the buffer stays there."""
        async with self._changed:
            self._stopped = True
            self._changed.notify_all()
