"""Which nodes drift: verdicts of a pool's history, weighed together node by node (`validation.drift`).

Anyone can do it from the public ledger. An alarm is no deviation of the coordinator and no proof against one
submission: such a node is to be looked at, on other hardware. Pure.
"""

from collections.abc import Iterable

from farflung.slots import events
from farflung.slots.events import Event
from farflung.validation.drift import Drift, after
from farflung.validation.proof_checks import DISTANCE, MEAN_MARGIN
from farflung.wire.proof import Expected
from farflung.wire.verdict import Outcome


def drift_of_nodes(history: Iterable[Event], expected: Expected) -> dict[str, Drift]:
    """Of every node with an accepted submission whose figures were measured."""
    nodes: dict[int, str] = {}
    drifts: dict[str, Drift] = {}
    for event in history:
        match event:
            case events.LeaseGranted(lease=lease):
                nodes[lease.slot] = lease.node
            case events.VerdictRecorded(slot=slot, verdict=verdict):
                figures = verdict.measured
                if verdict.outcome is Outcome.ACCEPTED and DISTANCE in figures and slot in nodes:
                    node = nodes.pop(slot)
                    drift = drifts.get(node, Drift())
                    drifts[node] = after(drift, figures[DISTANCE], figures.get(MEAN_MARGIN, 0.0), expected)
            case _:
                pass
    return drifts
