"""What became of leases, read from a coordinator's events."""

from benchmarks.heterogeneous import GROUP_SIZE, read_speeds

from farflung.slots.events import Forfeited, LeaseExpired, LeaseGranted, Submitted, VerdictRecorded
from farflung.slots.grants import LEASE_EXPIRED
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.submission import Receipt, Submission
from farflung.wire.verdict import Outcome, Verdict

DIGEST = sha256_hex(b"x")


def granted(slot: int, node: str, attempt: int = 0) -> LeaseGranted:
    return LeaseGranted(
        lease=Lease(
            pool_digest=DIGEST,
            lease_id=f"{slot}-{attempt}",
            slot=slot,
            attempt=attempt,
            node=node,
            policy_version=0,
            policy_digest=DIGEST,
            task_indices=(0, 1),
            target_lengths=(8, 16),
            draw_seed=DIGEST,
            capability_class="any",
            issued_at_ms=1000,
            expires_at_ms=6000,
        )
    )


def submitted(slot: int, at_ms: int, num_tokens: int) -> Submitted:
    submission = Submission(
        pool_digest=DIGEST,
        node="w",
        lease_id=f"{slot}-0",
        slot=slot,
        attempt=0,
        policy_version=0,
        policy_digest=DIGEST,
        file_key="rollouts/x",
        file_digest=DIGEST,
        file_bytes=1,
        num_rollouts=4,
        num_tokens=num_tokens,
    )
    receipt = Receipt(submission_digest=DIGEST, sequence=slot, epoch=0, received_at_ms=at_ms, deadline_ms=at_ms)
    return Submitted(submission=submission, receipt=receipt)


def accepted(slot: int) -> VerdictRecorded:
    verdict = Verdict(
        pool_digest=DIGEST,
        submission_digest=DIGEST,
        validator="v",
        outcome=Outcome.ACCEPTED,
        reason=None,
        evidence_digest=DIGEST,
        judged_at_ms=0,
    )
    return VerdictRecorded(slot=slot, verdict=verdict)


def test_finished_expired_and_accepted_leases_are_told_apart() -> None:
    speeds = read_speeds(
        [
            granted(0, "fast"),
            granted(1, "slow"),
            submitted(0, 1500, 90),
            accepted(0),
            LeaseExpired(slot=1, at_ms=6020, reason=LEASE_EXPIRED),
            granted(1, "fast", attempt=1),
            submitted(1, 2000, 80),
            granted(2, "slow"),
            Forfeited(slot=2, at_ms=1100, reason="superseded"),
        ]
    )
    asked = GROUP_SIZE * 24
    fast, slow = speeds["fast"], speeds["slow"]
    assert (fast.slot_s, fast.num_accepted, fast.tokens_accepted, fast.tokens_asked) == ([0.5, 1.0], 1, 90, 2 * asked)
    assert (slow.slot_s, slow.num_expired, slow.tokens_expired, slow.num_leases) == ([5.0], 1, asked, 1)
