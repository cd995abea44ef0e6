"""Whether something else ran on the machine while a figure was measured."""

import os

BUSY = 2.5
"""Load average of the last minute above which a two-core machine is not ours alone."""


def shared_machine() -> dict[str, str]:
    """A note for the details of a figure; empty on a quiet machine."""
    load = os.getloadavg()[0]
    return {"machine": f"shared (load average {load:.1f})"} if load > BUSY else {}
