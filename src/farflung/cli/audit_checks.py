"""What `farflung audit` tells of validators and of nodes that broke a rule: faults by node, lost bonds, dear checks."""

import sys
from collections import Counter
from dataclasses import dataclass

from farflung.validation.oversight import Oversight


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultsOfNode:
    """One kind of fault of one node."""

    node: str
    kind: str
    count: int
    costs_bond: bool


def faults_by_node(checks: Oversight) -> list[FaultsOfNode]:
    """Those that cost a bond first, then by how often."""
    counts = Counter((fault.node, fault.kind) for fault in checks.faults)
    found = [
        FaultsOfNode(node=node, kind=kind.value, count=count, costs_bond=kind.forfeits_bond)
        for (node, kind), count in counts.items()
    ]
    return sorted(found, key=lambda each: (not each.costs_bond, -each.count, each.node))


def show_checks(checks: Oversight) -> None:
    """In a few lines, only of what there was."""
    lines = []
    if checks.num_panels_checked or checks.num_panels_sealed:
        sealed = f", {checks.num_panels_sealed} of epochs that are not revealed yet" if checks.num_panels_sealed else ""
        lines.append(f"draws of validators computed again: {checks.num_panels_checked}{sealed}")
    if checks.num_audits_due:
        lines.append(
            f"submissions to be sampled and graded again: {checks.num_audits_due}, {checks.num_audits_done} were"
        )
    if checks.num_ringers:
        lines.append(f"planted files judged: {checks.num_ringers}")
    lines += [f"{each.node}: {each.kind.replace('_', ' ')}, {each.count} times" for each in faults_by_node(checks)]
    lines += [
        f"{node} lost its bond on slot {fault.slot}: {fault.kind.replace('_', ' ')} {fault.detail}".rstrip()
        for node, fault in checks.lost_bonds.items()
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
