"""What others see of planted files before they are judged: that there is one, and nothing else."""

from typing import Any

from msgspec.structs import replace

from farflung.coordinator.history import read_history
from farflung.coordinator.journal import PoolOpened, decode, encode
from farflung.coordinator.public_ledger import shown
from farflung.slots.events import RingerEnded, RingerPlanted
from farflung.state.event_log import Entry
from farflung.validation.oversight import oversee
from farflung.wire.lease import Lease
from farflung.wire.panel import Ringer, RingerKind

DIGEST = "b" * 64
LEASE = Lease(
    pool_digest=DIGEST, lease_id="0-0", slot=0, attempt=0, node="w", policy_version=0, policy_digest=DIGEST,
    task_indices=(0, 1), target_lengths=(0, 0), draw_seed="5e" * 32, capability_class="any", issued_at_ms=0,
    expires_at_ms=1,
)  # fmt: skip


def a_ringer(build: Any, spec: Any) -> Ringer:
    return Ringer(
        kind=RingerKind.TOKENS,
        validator="validator-1",
        submission=build.submission_of(spec, LEASE, "rollouts/000000/0-0-ab.parquet"),
        lease=LEASE,
        source_digest=DIGEST,
    )


def entry(sequence: int, record: Any) -> Entry:
    kind, body = encode(record)
    return Entry(sequence=sequence, at_ms=0, kind=kind, body=body)


def test_the_ledger_commits_to_what_is_planted_and_shows_it_when_it_was_judged(build: Any) -> None:
    spec = build.pool_spec()
    ringer = a_ringer(build, spec)
    planted = RingerPlanted(ringer_digest=ringer.digest(), at_ms=0, ringer=ringer)
    assert decode(entry(1, planted)) == planted, "the journal keeps it"
    line = shown(entry(1, planted))
    for told in (b"validator-1", b"tokens", b"parquet", DIGEST.encode(), ringer.submission.digest().encode()):
        assert told not in bytes(line.record)
    assert ringer.digest().encode() in bytes(line.record)
    ended = RingerEnded(ringer=ringer, verdict=None, at_ms=1)
    opened = shown(entry(0, PoolOpened(spec=spec, secret=bytes(32))))
    history = read_history([opened, line, shown(entry(2, ended))])
    assert [event for _, event in history.events] == [replace(planted, ringer=None), ended]
    assert oversee(history.rules, (), history.events).deviations == []


def test_what_is_called_planted_afterwards_is_named(build: Any) -> None:
    """A coordinator cannot make a trap of a file after its verdict."""
    spec = build.pool_spec()
    ringer = a_ringer(build, spec)
    other = RingerPlanted(ringer_digest=replace(ringer, kind=RingerKind.PROOF).digest(), at_ms=0)
    (deviation,) = oversee(spec, (), [(1, other), (2, RingerEnded(ringer=ringer, verdict=None, at_ms=1))]).deviations
    assert deviation.rule == "ringer"
    assert "was not committed to before" in deviation.detail
