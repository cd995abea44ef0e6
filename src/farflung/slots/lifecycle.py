"""The life of one slot, as a table.

                   Forfeited, LeaseExpired                      the same, out of attempts or out of the window
                 .------------------------. .---------------------------------> FORFEITED / EXPIRED
                 v                        | |
    (new) --> LEASED <-- VACANT <---------' |   SlotClosed, VersionPublished
                 |          |---------------+---------------------------------> FORFEITED / EXPIRED
                 |          '---- LeaseGranted (attempt + 1) --> LEASED
                 | Submitted
                 v                 VerdictRecorded
             SUBMITTED -------------------------------------------------------> ACCEPTED / REJECTED / EXPIRED
                 |   ^  |                                                        |
                 |   '--' VerdictRecorded (unjudged), JudgingLapsed               '-- BatchRecorded: consumed or dropped
                 |        PanelDrawn, VoteSealed, VotesOpened, VoteShown, PanelFailed: see `slots.panel`
                 '-- SlotClosed (judged too often), VersionPublished (out of the window) --> EXPIRED

In deterministic mode (`slots.deterministic`) a verdict that does not accept makes the slot VACANT again, there is no
last attempt, and nothing is closed: every slot ends accepted.

What a submission earns: accepted is paid and trained on; expired is paid (the delay was ours) and not trained on.
This module knows one slot at a time; which node gets what, and how many slots there may be, is the ledger's.
"""

from collections.abc import Mapping

from farflung.slots import events
from farflung.slots.events import Event
from farflung.slots.illegal import IllegalEvent as IllegalEvent
from farflung.slots.panel import Panel
from farflung.wire.canonical import Record
from farflung.wire.lease import Lease
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import SlotState, Verdict

TRANSITIONS: Mapping[SlotState | None, Mapping[type[Event], frozenset[SlotState]]] = {
    None: {events.LeaseGranted: frozenset({SlotState.LEASED})},
    SlotState.VACANT: {
        events.LeaseGranted: frozenset({SlotState.LEASED}),
        events.SlotClosed: frozenset({SlotState.FORFEITED, SlotState.EXPIRED}),
        events.VersionPublished: frozenset({SlotState.FORFEITED, SlotState.EXPIRED}),
    },
    SlotState.LEASED: {
        events.Submitted: frozenset({SlotState.SUBMITTED, SlotState.EXPIRED}),
        events.Forfeited: frozenset({SlotState.VACANT, SlotState.FORFEITED}),
        events.LeaseExpired: frozenset({SlotState.VACANT, SlotState.EXPIRED}),
    },
    SlotState.SUBMITTED: {
        events.VerdictRecorded: frozenset(
            {SlotState.SUBMITTED, SlotState.ACCEPTED, SlotState.REJECTED, SlotState.EXPIRED, SlotState.VACANT}
        ),
        events.JudgingLapsed: frozenset({SlotState.SUBMITTED}),
        events.PanelDrawn: frozenset({SlotState.SUBMITTED}),
        events.VoteSealed: frozenset({SlotState.SUBMITTED}),
        events.VotesOpened: frozenset({SlotState.SUBMITTED}),
        events.VoteShown: frozenset({SlotState.SUBMITTED}),
        events.PanelFailed: frozenset({SlotState.SUBMITTED}),
        events.SlotClosed: frozenset({SlotState.EXPIRED}),
        events.VersionPublished: frozenset({SlotState.EXPIRED}),
    },
    SlotState.ACCEPTED: {
        events.BatchRecorded: frozenset({SlotState.ACCEPTED}),
        events.VersionPublished: frozenset({SlotState.ACCEPTED}),
    },
    SlotState.REJECTED: {},
    SlotState.EXPIRED: {},
    SlotState.FORFEITED: {},
}
"""State (None = the slot does not exist) -> event -> states that it may lead to."""


class Slot(Record, frozen=True, kw_only=True):
    """A numbered piece of work of one policy version."""

    slot: int
    state: SlotState
    lease: Lease
    """The newest; its version is the slot's."""
    lost_by: tuple[str, ...] = ()
    """Nodes whose lease of it ended without a submission."""
    was_forfeited: bool = False
    """The newest lease that was lost was given back by its node, not taken away."""
    vacant_since_ms: int = 0
    submission: Submission | None = None
    receipt: Receipt | None = None
    num_accepted_before: int = 0
    """Submissions of its node that were accepted before this one was handed in."""
    failed_validators: tuple[str, ...] = ()
    """One entry per attempt to judge that came to nothing."""
    panel: Panel | None = None
    """The validators that judge it now, in pools where several do."""
    num_failed_panels: int = 0
    verdict: Verdict | None = None
    reason: str = ""
    """Why it ended as it did, unless accepted; why it is vacant, before."""
    sequence: int | None = None
    """Position in the feed of outcomes, once final."""
    is_spent: bool = False
    """Accepted, and consumed by a published batch or dropped."""

    @property
    def policy_version(self) -> int:
        return self.lease.policy_version

    @property
    def is_final(self) -> bool:
        return self.state.is_final

    @property
    def is_ready(self) -> bool:
        """Accepted and still to be trained on."""
        return self.state is SlotState.ACCEPTED and not self.is_spent


def check_transition(before: SlotState | None, event: type[Event], after: SlotState | None = None) -> None:
    """Raises `IllegalEvent` unless the table has the event in this state, leading to `after` if given."""
    allowed = TRANSITIONS[before].get(event)
    if allowed is None or (after is not None and after not in allowed):
        raise IllegalEvent(f"{event.__name__} on a slot that is {before}{f' to become {after}' if after else ''}")
