"""Epochs: stretches of slots with a secret of their own, committed to before and revealed after.

    epoch of a slot    the last one whose first slot is not after it
    revealed           when the epoch has ended and every slot of it has: nobody draws with the secret any more

A secret that never changed could never be shown. This module draws no secrets and knows no clock.
"""

from bisect import bisect_right
from collections.abc import Sequence

from farflung.slots.lifecycle import IllegalEvent
from farflung.slots.seeds import commit_secret
from farflung.wire.canonical import Record
from farflung.wire.epoch import EpochNotice

MAX_REMEMBERED = 512
"""Epochs: three weeks of one an hour. Those before are in the published ledger."""


class EpochBegan(Record, frozen=True, kw_only=True):
    """From `first_slot` on, tasks and draws follow from this secret. Never leaves the coordinator before the reveal."""

    number: int
    first_slot: int
    secret: bytes
    at_ms: int


class EpochBook:
    """The epochs of one pool, oldest first. There is always one that runs."""

    def __init__(self, pool_digest: str, began: Sequence[EpochBegan]) -> None:
        self._pool_digest = pool_digest
        self.began = list(began)

    @property
    def current(self) -> EpochBegan:
        return self.began[-1]

    def of_slot(self, slot: int) -> EpochBegan:
        """The epoch that a remembered slot belongs to."""
        return self.began[bisect_right(self.began, slot, key=lambda epoch: epoch.first_slot) - 1]

    def begin(self, epoch: EpochBegan, next_slot: int) -> None:
        """Take the next one.

        Raises:
            IllegalEvent: it is not the next, or does not begin with the next slot; nothing was changed.
        """
        if epoch.number != self.current.number + 1 or epoch.first_slot != next_slot:
            raise IllegalEvent(
                f"epoch {epoch.number} from slot {epoch.first_slot} after epoch {self.current.number}, with slot "
                f"{next_slot} to come: epochs are consecutive and begin with the next slot"
            )
        self.began.append(epoch)

    def forget(self, oldest_slot: int) -> None:
        """Drop the oldest beyond `MAX_REMEMBERED`, unless a slot from `oldest_slot` on is theirs."""
        while len(self.began) > MAX_REMEMBERED and self.began[1].first_slot <= oldest_slot:
            del self.began[0]

    def notices(self, oldest_open_slot: int) -> list[EpochNotice]:
        """What everybody may know.

        Args:
            oldest_open_slot: every slot before it has ended.
        """
        ends = [epoch.first_slot for epoch in self.began[1:]]
        return [
            EpochNotice(
                pool_digest=self._pool_digest,
                number=epoch.number,
                first_slot=epoch.first_slot,
                commitment=commit_secret(epoch.secret),
                opened_at_ms=epoch.at_ms,
                end_slot=end,
                secret=epoch.secret.hex() if end is not None and end <= oldest_open_slot else "",
            )
            for epoch, end in zip(self.began, [*ends, None], strict=True)
        ]
