"""From the coordinator's feed of finished slots into the trainer's inbox."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.patience import Patience
from farflung.errors import PeerFault
from farflung.trainer.inbox import Inbox
from farflung.trainer.intake import graded_groups
from farflung.wire.batch import SlotOutcome
from farflung.wire.pool import PoolSpec
from farflung.wire.submission import Submission
from farflung.wire.verdict import SlotState

logger = logging.getLogger(__name__)

POLL_S = 10.0


class Feed:
    """Reads outcomes in order, downloads what was accepted, and keeps the submissions that batch records name."""

    def __init__(self, client: CoordinatorClient, patience: Patience, pool: PoolSpec, inbox: Inbox) -> None:
        self._client = client
        self._patience = patience
        self._pool = pool
        self._inbox = inbox
        self._cursor = -1
        self.submissions: dict[int, Submission] = {}
        """Of admitted slots until they are trained on or dropped."""
        self.closed: Counter[str] = Counter()
        """Reason -> groups of slots that ended without being accepted."""

    async def catch_up(self) -> None:
        """Close slots that ended before this trainer started and are not in the feed any more."""
        still_open = set((await self._patience(self._client.open_slots)).slots)
        outcomes = await self._patience(lambda: self._client.outcomes(after=self._cursor))
        in_feed = {outcome.slot for outcome in outcomes}
        highest = max(still_open | in_feed, default=-1)
        for slot in range(self._inbox.buffer.cursor, highest):
            if slot not in still_open and slot not in in_feed and not self._inbox.buffer.has_seen(slot):
                await self._inbox.close(slot, "settled_before")

    async def run(self) -> None:
        """Read until cancelled or stopped."""
        while not self._client.is_finished:
            outcomes = await self._patience(lambda: self._client.outcomes(after=self._cursor, wait_s=POLL_S))
            for outcome in outcomes:
                await self._take(outcome)
                self._cursor = outcome.sequence

    def forget(self, slots: Iterable[int]) -> None:
        """These slots were trained on or dropped, and the batch record says so."""
        for slot in slots:
            self.submissions.pop(slot, None)

    async def _take(self, outcome: SlotOutcome) -> None:
        if self._inbox.buffer.has_seen(outcome.slot):
            return
        if outcome.state is not SlotState.ACCEPTED:
            await self._close(outcome.slot, _reason(outcome))
            return
        submission, verdict = outcome.submission, outcome.verdict
        assert submission is not None
        assert verdict is not None
        try:
            data = await self._patience(lambda: self._client.download(submission.file_key, self._pool.max_file_bytes))
            evidence = await self._patience(lambda: self._client.evidence(verdict))
            groups = await asyncio.to_thread(graded_groups, outcome, data, evidence, self._pool)
        except (PeerFault, Refused) as error:
            # Judged once, but not readable now: it must not be trained on.
            logger.warning("accepted slot %d is dropped: %s", outcome.slot, error)
            await self._close(outcome.slot, "unreadable")
            return
        self.submissions[outcome.slot] = submission
        await self._inbox.admit(outcome.slot, outcome.policy_version, groups, submission.num_tokens, submission.node)

    async def _close(self, slot: int, reason: str) -> None:
        self.closed[reason] += self._pool.groups_per_slot
        await self._inbox.close(slot, reason)


def _reason(outcome: SlotOutcome) -> str:
    if outcome.verdict is not None and outcome.verdict.reason is not None:
        return outcome.verdict.reason.value
    return outcome.state.value
