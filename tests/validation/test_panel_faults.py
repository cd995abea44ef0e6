"""What is recorded against validators when votes are counted, and what costs a bond: V1 of the threat model."""

import pytest

from farflung.slots.panel import Panel, committed, decision, opened
from farflung.validation.panel_faults import panel_faults
from farflung.wire.panel import FaultKind
from farflung.wire.verdict import GRADING_FAULT, SLASHABLE, RejectReason
from panel_votes import commitment, panel_of, vote, voted

POOL = "d" * 64
BETWEEN, BEYOND = {SLASHABLE: 0.0}, {SLASHABLE: 1.0}


def kinds_of(panel: Panel, quorum: int = 2) -> dict[str, FaultKind]:
    found = panel_faults(panel, decision(panel, quorum), pool_digest=POOL, slot=3)
    return {fault.node: fault.kind for fault in found}


def test_who_agrees_has_no_fault() -> None:
    assert kinds_of(voted(vote("a"), vote("b"), vote("c"))) == {}


@pytest.mark.parametrize(
    ("reason", "measured", "kind"),
    [
        (RejectReason.TOKEN_RANGE, {}, FaultKind.FALSE_REJECT),
        (RejectReason.ACTIVATIONS, BEYOND, FaultKind.FALSE_REJECT),
        (RejectReason.ACTIVATIONS, BETWEEN, FaultKind.DISAGREED),
        (RejectReason.DRAWS, BETWEEN, FaultKind.DISAGREED),
        (RejectReason.FILE_DIGEST, {}, FaultKind.DISAGREED),
    ],
)
def test_v1_a_lone_reject_costs_the_bond_unless_another_machine_may_see_it_so(
    reason: RejectReason, measured: dict[str, float], kind: FaultKind
) -> None:
    panel = voted(vote("a"), vote("b", reason, measured=measured), vote("c"))
    assert kinds_of(panel) == {"b": kind}
    assert kind.forfeits_bond is (kind is FaultKind.FALSE_REJECT)


@pytest.mark.parametrize(
    ("reason", "measured", "kind"),
    [
        (RejectReason.WRONG_TASK, {}, FaultKind.FALSE_ACCEPT),
        (RejectReason.DRAWS, BEYOND, FaultKind.FALSE_ACCEPT),
        (RejectReason.DRAWS, BETWEEN, FaultKind.DISAGREED),
    ],
)
def test_v2_a_lone_accept_costs_the_bond_unless_another_machine_may_see_it_so(
    reason: RejectReason, measured: dict[str, float], kind: FaultKind
) -> None:
    panel = voted(vote("a", reason, measured=measured), vote("b"), vote("c", reason, measured=measured))
    assert kinds_of(panel) == {"b": kind}


def test_other_rewards_cost_the_bond_unless_somebody_could_not_grade() -> None:
    other = "c" * 64
    assert kinds_of(voted(vote("a"), vote("b", rewards=other), vote("c"))) == {"b": FaultKind.FALSE_REWARDS}
    slow = vote("b", rewards=other, measured={f"{GRADING_FAULT}timeout": 1.0})
    assert kinds_of(voted(vote("a"), slow, vote("c"))) == {"b": FaultKind.DISAGREED}


def test_who_could_not_judge_or_saw_the_version_grow_too_old_has_no_fault() -> None:
    unjudged, late = vote("b", RejectReason.VALIDATOR_FAULT), vote("b", RejectReason.VERSION_WINDOW)
    assert kinds_of(voted(vote("a"), unjudged, vote("c"))) == {}
    assert kinds_of(voted(vote("a"), late, vote("c"))) == {}


def test_who_was_not_there_is_told_apart_from_who_kept_its_vote() -> None:
    panel = panel_of("a", "b", "c")
    for name in ("a", "b"):
        panel = committed(panel, commitment(vote(name)))
    assert kinds_of(panel) == {"c": FaultKind.NOT_COMMITTED}, "nobody was asked to show anything yet"
    kinds = kinds_of(opened(panel, 20))
    assert kinds == {"a": FaultKind.NOT_REVEALED, "b": FaultKind.NOT_REVEALED, "c": FaultKind.NOT_COMMITTED}
    assert not any(kind.forfeits_bond for kind in kinds.values())


def test_without_a_quorum_nobody_is_wrong() -> None:
    panel = voted(vote("a"), vote("b", RejectReason.SCHEMA), vote("c", rewards="c" * 64))
    assert kinds_of(panel) == {}
