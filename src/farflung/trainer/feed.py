"""From the coordinator's feed of finished slots into the trainer's inbox."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.patience import Patience, Stopped
from farflung.errors import PeerFault, UserError
from farflung.rl.types import Batch
from farflung.trainer.inbox import Inbox
from farflung.trainer.intake import IntakeRules, graded_groups
from farflung.trainer.regrading import REGRADED_DIFFERENTLY, Regrader
from farflung.trainer.samples import TrainingSet, batch_items
from farflung.wire.batch import BatchItem, SlotOutcome
from farflung.wire.submission import Submission
from farflung.wire.verdict import SlotState

logger = logging.getLogger(__name__)

SETTLED = "settled"
"""Why a slot is closed that is not in the feed any more; what became of it the coordinator knows."""
UNREADABLE = "unreadable"
"""Drop reason of an accepted slot whose file or evidence is not there any more, or not what was judged."""


class Feed:
    """Reads outcomes in order, downloads what was accepted, and keeps the submissions that batch records name.

    The feed leaves out what was trained on or dropped, and what ended after its version had left the staleness window.
    Nobody must wait for those slots, so they are looked for: at the start, and whenever the inbox has waited for the
    same slot for a whole version.
    """

    def __init__(
        self,
        client: CoordinatorClient,
        patience: Patience,
        rules: IntakeRules,
        inbox: Inbox,
        *,
        poll_s: float,
        regrader: Regrader | None = None,
    ) -> None:
        """
        Args:
            regrader: grades some slots once more; None = validators are believed.
        """
        self._regrader = regrader
        self._client = client
        self._patience = patience
        self._rules = rules
        self._inbox = inbox
        self._poll_s = poll_s
        self._cursor = -1
        self._first_gap = -1
        """First slot that the inbox had not seen when the version before was published."""
        self._has_old_gap = False
        self.submissions: dict[int, Submission] = {}
        """Of admitted slots until they are trained on or dropped."""

    async def close_absent(self) -> None:
        """Close every slot that ended and is not in the feed any more."""
        table = await self._patience(self._client.open_slots)  # first, so that a slot that ends meanwhile is in one
        expected = {*table.slots, *await self._unread_slots()}
        for slot in range(self._inbox.buffer.cursor, table.next_slot):
            if slot not in expected and not self._inbox.buffer.has_seen(slot):
                await self._inbox.close(slot, SETTLED)

    async def run(self) -> None:
        """Read until the run is over or the role is asked to stop; then nothing more comes into the inbox."""
        try:
            with suppress(Stopped):
                while not self._client.is_finished:
                    await self._read()
                    if self._has_old_gap:
                        self._has_old_gap = False
                        await self.close_absent()
        finally:
            await self._inbox.stop()

    def items(self, batch: Batch, training: TrainingSet) -> tuple[BatchItem, ...]:
        """The batch record's entries: which submission gave which groups."""
        return batch_items(batch, training, self.submissions)

    def published(self, slots: Iterable[int]) -> None:
        """A version is out whose batch record says that these slots were trained on or dropped."""
        for slot in slots:
            self.submissions.pop(slot, None)
        first_gap = self._inbox.buffer.cursor
        self._has_old_gap = first_gap == self._first_gap
        self._first_gap = first_gap

    async def _read(self) -> None:
        for outcome in await self._outcomes(self._cursor, self._poll_s):
            await self._take(outcome)
            self._cursor = outcome.sequence

    async def _unread_slots(self) -> list[int]:
        slots: list[int] = []
        cursor = self._cursor
        while outcomes := await self._outcomes(cursor):
            slots += [outcome.slot for outcome in outcomes]
            cursor = outcomes[-1].sequence
        return slots

    async def _outcomes(self, after: int, wait_s: float = 0.0) -> list[SlotOutcome]:
        return await self._patience(lambda: self._client.outcomes(after, wait_s))

    async def _take(self, outcome: SlotOutcome) -> None:
        if self._inbox.buffer.has_seen(outcome.slot):
            return
        if outcome.state is not SlotState.ACCEPTED:
            await self._inbox.close(outcome.slot, _reason(outcome))
            return
        submission, verdict = outcome.submission, outcome.verdict
        assert submission is not None
        assert verdict is not None
        max_bytes = self._rules.pool.max_file_bytes
        try:
            data = await self._patience(lambda: self._client.download(submission.file_key, max_bytes))
            evidence = await self._patience(lambda: self._client.evidence(verdict))
            groups = await asyncio.to_thread(graded_groups, outcome, data, evidence, self._rules)
        except (PeerFault, Refused) as error:
            if self._rules.pool.is_deterministic:
                raise UserError(
                    f"accepted slot {outcome.slot} cannot be read ({error}): a deterministic run does not go on "
                    "without it; restore the coordinator's store, or give the run another name"
                ) from error
            logger.warning("accepted slot %d is dropped: %s", outcome.slot, error)
            await self._inbox.give_up(outcome.slot, UNREADABLE)
            return
        problem = None if self._regrader is None else await asyncio.to_thread(self._regrader.problem, groups)
        if problem is not None:
            logger.error("accepted slot %d is not learned from: %s", outcome.slot, problem)
            await self._inbox.give_up(outcome.slot, REGRADED_DIFFERENTLY)
            return
        self.submissions[outcome.slot] = submission
        await self._inbox.admit(outcome.slot, outcome.policy_version, groups, submission.num_tokens, submission.node)


def _reason(outcome: SlotOutcome) -> str:
    if outcome.verdict is not None and outcome.verdict.reason is not None:
        return outcome.verdict.reason.value
    return outcome.state.value
