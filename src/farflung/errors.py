"""Who is to blame is a type.

    FarflungError
    +-- UserError      the person's input is wrong: one sentence with value, rule and fix; exit code 2
    +-- PeerFault      another party broke the protocol; carries the machine-readable reason; slashable
    +-- OurFault       this process or machine failed; never accepts, never slashes
    +-- Transient      the world was briefly unavailable; try again

Rejections of foreign work are values (`wire.verdict.RejectReason`), not exceptions: `PeerFault` only carries
one of them out of a parser to the single place that turns it into a verdict.
"""


class FarflungError(Exception):
    """Base of every error that this package raises on purpose."""


class UserError(FarflungError, ValueError):
    """Input from the person at the keyboard breaks a rule. The message names the value, the rule and the fix."""


class PeerFault(FarflungError):
    """Bytes or behaviour of another party break the protocol.

    Args:
        reason: machine-readable reason, a `RejectReason` value.
        detail: what was seen, with the offending value, for the evidence bundle.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class OurFault(FarflungError):
    """This process cannot do its own work: a bug, a full disk, a crashed child."""


class Transient(FarflungError):
    """Something outside was unavailable; the caller retries with back-off."""
