"""The history of a pool, node by node."""

from collections.abc import Iterator

from msgspec.structs import replace

from farflung.cli.audit import _drifting
from farflung.coordinator.history import History
from farflung.slots import events
from farflung.slots.events import Event
from farflung.slots.grants import Grant
from farflung.slots.leases import write_lease
from farflung.validation.drift import Drift
from farflung.validation.node_drift import drift_of_nodes
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import LeaseRequest
from farflung.wire.proof import DEFAULT_RULES, Expected
from farflung.wire.verdict import Outcome, RejectReason, Verdict
from tiny_pool import pool_spec

POOL = pool_spec(trust="proven", coordinator="0x" + "1" * 40, trainer="0x" + "2" * 40, proofs=DEFAULT_RULES)
EXPECTED = Expected(distance=0.018, mean_margin=0.0015)


def slot_of(number: int, node: str, distance: float, outcome: Outcome = Outcome.ACCEPTED) -> Iterator[Event]:
    """A lease and its verdict."""
    request = LeaseRequest(node=node, policy_version=0, policy_digest=sha256_hex(b"policy"))
    yield events.LeaseGranted(
        lease=write_lease(POOL, POOL.digest(), bytes(32), request, Grant(slot=number, attempt=0), now_ms=0)
    )
    verdict = Verdict(
        pool_digest=POOL.digest(),
        submission_digest=sha256_hex(b"submission"),
        validator="validator",
        outcome=outcome,
        reason=None if outcome is Outcome.ACCEPTED else RejectReason.ACTIVATIONS,
        evidence_digest=sha256_hex(b"evidence"),
        measured={"proof/activation_submission": distance, "proof/mean_margin": 0.0003},
        judged_at_ms=0,
    )
    yield events.VerdictRecorded(slot=number, verdict=verdict)


def two_nodes(count: int = 30) -> list[Event]:
    found: list[Event] = []
    for number in range(count):
        found += slot_of(2 * number, "honest", 0.0145)
        found += slot_of(2 * number + 1, "just-inside", 0.0235)
    return found


def test_w17_the_node_that_stays_just_inside_the_limits_is_named_and_no_other() -> None:
    found = drift_of_nodes(two_nodes(), EXPECTED)
    assert {node: drift.is_alarm() for node, drift in found.items()} == {"honest": False, "just-inside": True}
    assert {drift.num_submissions for drift in found.values()} == {30}


def test_a_rejection_counts_once_by_itself() -> None:
    history = list(slot_of(0, "far-off", 0.5, Outcome.REJECTED))
    assert drift_of_nodes(history, EXPECTED) == {}


def test_a_verdict_without_figures_says_nothing() -> None:
    granted, recorded = slot_of(0, "open", 0.01)
    assert isinstance(recorded, events.VerdictRecorded)
    bare = replace(recorded.verdict, measured={})
    assert drift_of_nodes([granted, events.VerdictRecorded(slot=0, verdict=bare)], EXPECTED) == {}


def test_an_audit_names_it_where_the_pool_says_what_to_expect() -> None:
    history = History(rules=POOL, events=list(enumerate(two_nodes())))
    assert list(_drifting(history)) == ["just-inside"]
    assert isinstance(_drifting(history)["just-inside"], Drift)
    assert _drifting(History(rules=pool_spec(), events=history.events)) == {}
