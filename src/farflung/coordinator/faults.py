"""What nodes did goes into the public ledger, and with it who lost a bond."""

import logging

from farflung.coordinator.core import Core
from farflung.slots.events import BondForfeited, FaultRecorded
from farflung.wire.panel import BondForfeit, Fault

logger = logging.getLogger(__name__)


def record_fault(core: Core, fault: Fault) -> None:
    """As a forfeit when it costs the bond, and there is one."""
    logger.warning("%s: %s on slot %d %s", fault.node, fault.kind, fault.slot, fault.detail)
    now_ms = core.now_ms()
    if fault.kind.forfeits_bond and fault.node not in core.state.ledger.standings.lost_bonds:
        core.step(BondForfeited(forfeit=core.signed(BondForfeit(fault=fault, at_ms=now_ms))))
    else:
        core.step(FaultRecorded(fault=fault, at_ms=now_ms))
