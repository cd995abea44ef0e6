"""What the ledger says to events that cannot be."""

from farflung.errors import OurFault


class IllegalEvent(OurFault):
    """The event cannot happen to this slot now. Nothing was changed; whoever decided on the event has a bug."""
