"""Epochs and the public ledger of a running coordinator: sealed, revealed, complete, and audited from outside."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from farflung.api.errors import Refused
from farflung.cli.main import main
from farflung.coordinator import public_ledger
from farflung.coordinator.history import read_history
from farflung.errors import PeerFault
from farflung.slots.audit import audit
from farflung.slots.leases import write_lease
from farflung.slots.seeds import check_reveal
from farflung.wire.epoch import EpochNotice
from farflung.wire.history import Line, read_segment, segments_of, write_segment
from farflung.wire.lease import Lease

EPOCH_MS = 60_000


async def wait_until_revealed(pool: Any, number: int) -> list[EpochNotice]:
    auditor = await pool.trainer()
    for _ in range(500):
        notices: list[EpochNotice] = await auditor.epochs()
        keys = await auditor.ledger_keys()
        if any(key.endswith(f"epoch-{number:06d}.json") for key in keys):
            return notices
        await asyncio.sleep(0.01)
    raise AssertionError(f"epoch {number} is not revealed")


async def wait_for_epoch(pool: Any, number: int) -> None:
    for _ in range(500):
        if len(await (await pool.trainer()).epochs()) > number:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"epoch {number} does not begin")


async def lines_of(pool: Any) -> list[Line]:
    auditor = await pool.trainer()
    keys = await auditor.ledger_keys()
    return [line for _, _, key in segments_of(keys) for line in read_segment(await auditor.ledger_part(key))]


async def test_a_secret_is_sealed_until_the_last_slot_of_its_epoch_has_ended(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(epoch_s=EPOCH_MS / 1000, clock=clock) as pool:
        await pool.publish()
        await pool.accepted("w1")
        submission = await pool.submitted("w2")
        clock.ahead_ms += EPOCH_MS
        await wait_for_epoch(pool, 1)
        (first, second) = await (await pool.trainer()).epochs()
        assert (first.first_slot, first.end_slot, first.secret) == (0, 2, "")
        assert (second.first_slot, second.end_slot, second.secret) == (2, None, "")
        await pool.judged(submission)
        first, second = await wait_until_revealed(pool, 0)
        assert check_reveal(first.commitment, bytes.fromhex(first.secret))
        assert second.secret == ""
        assert (await pool.leased("w1")).slot == 2


async def test_an_auditor_far_away_replays_what_was_published(start: Any, build: Any, capsys: Any) -> None:
    clock = build.clock()
    async with start(epoch_s=EPOCH_MS / 1000, clock=clock, snapshot_every_events=10) as pool:
        await pool.publish()
        for _ in range(3):
            await pool.accepted("w1")
            await pool.publish(await (await pool.trainer()).outcomes(await last_sequence(pool)))
        clock.ahead_ms += EPOCH_MS
        await wait_until_revealed(pool, 0)
        notices = await (await pool.trainer()).epochs()
        history = read_history(await lines_of(pool))
        found = audit(history.rules, notices, history.events, history.plans, history.plan_of_version)
        assert (found.num_leases_checked, found.deviations) == (3, ())
        assert len(history.publications) == 4
        code = await asyncio.to_thread(main, ["audit", pool.url, "--json"])
        told = json.loads(capsys.readouterr().out)
        assert (code, told["num_leases_checked"], told["deviations"]) == (0, 3, [])


async def last_sequence(pool: Any) -> int:
    last = await (await pool.trainer()).last_publication()
    return -1 if last is None or last.batch is None else last.batch.policy_version - 1


async def test_no_line_of_the_ledger_shows_a_secret(start: Any, build: Any, tmp_path: Path) -> None:
    clock = build.clock()
    async with start(epoch_s=EPOCH_MS / 1000, clock=clock, snapshot_every_events=10) as pool:
        await pool.publish()
        await pool.accepted("w1")
        clock.ahead_ms += EPOCH_MS
        await wait_until_revealed(pool, 0)
        lines = await lines_of(pool)
        (running,) = [notice for notice in await (await pool.trainer()).epochs() if not notice.secret]
    text = b"".join(bytes(line.record) for line in lines)
    assert b"secret" not in text
    assert running.commitment.encode() not in text
    assert {"pool_opened", "published", "lease_granted", "submitted", "verdict_recorded", "epoch_began"} <= {
        line.kind for line in lines
    }


async def test_the_ledger_goes_on_after_a_restart_without_gap_or_repetition(
    start: Any, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_ledger, "SEGMENT_EVENTS", 4)
    for round_number in range(3):
        async with start(snapshot_every_events=10) as pool:
            if round_number == 0:
                await pool.publish()
            await pool.accepted("w1")
            await asyncio.sleep(0.1)
    async with start(snapshot_every_events=10) as pool:
        await asyncio.sleep(0.1)
        lines = await lines_of(pool)
    assert [line.sequence for line in lines] == list(range(len(lines)))
    assert len(lines) >= 8


async def test_what_is_no_part_of_a_ledger_is_not_served(pool: Any) -> None:
    trainer = await pool.trainer()
    for key in ("ledger/events-000000000000-000000000009.jsonl.gz", "ledger/secrets.json"):
        with pytest.raises(Refused, match=r"not published|no part of a ledger"):
            await trainer.ledger_part(key)


async def test_a_deterministic_pool_has_one_epoch(start: Any, build: Any) -> None:
    clock = build.clock()
    async with start(build.pool_spec(deterministic_seed=3), epoch_s=EPOCH_MS / 1000, clock=clock) as pool:
        await pool.publish()
        await pool.accepted("w1")
        clock.ahead_ms += 3 * EPOCH_MS
        await asyncio.sleep(0.2)
        assert len(await (await pool.trainer()).epochs()) == 1


async def test_the_owner_of_a_run_audits_its_folder_to_the_last_step(
    start: Any, build: Any, tmp_path: Path, capsys: Any
) -> None:
    clock = build.clock()
    where = {"store_url": str(tmp_path / "store"), "database_url": f"sqlite:///{tmp_path}/coordinator.db"}
    async with start(epoch_s=EPOCH_MS / 1000, clock=clock, snapshot_every_events=10, **where) as pool:
        await pool.publish()
        await pool.accepted("w1")
        clock.ahead_ms += EPOCH_MS
        await wait_until_revealed(pool, 0)
        await pool.leased("w1")
    assert await asyncio.to_thread(main, ["audit", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "2 epochs" in told
    assert "leases computed again: 2\n" in told
    assert "as the rules say" in told


async def test_a_ledger_whose_owner_chose_a_task_is_told_with_exit_code_1(
    start: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def favour(*args: Any, **rest: Any) -> Lease:
        return replace(write_lease(*args, **rest), task_indices=(7, 8))

    monkeypatch.setattr("farflung.coordinator.leasing.write_lease", favour)
    where = {"store_url": str(tmp_path / "store"), "database_url": f"sqlite:///{tmp_path}/coordinator.db"}
    async with start(**where) as pool:
        await pool.publish()
        await pool.accepted("w1")
    assert await asyncio.to_thread(main, ["audit", str(tmp_path)]) == 1
    assert "task_indices of lease 0-0 is (7, 8)" in " ".join(capsys.readouterr().out.split())


def test_what_is_no_run_is_told_so(tmp_path: Path, capsys: Any) -> None:
    assert main(["audit", str(tmp_path)]) not in (0, 1)
    assert "no folder of a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut short"),
        (b"not gzip", "header"),
        (write_segment([Line(sequence=0, at_ms=0, kind="x")])[:-9], "cut short"),
    ],
)
def test_segments_that_are_none_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(PeerFault, match=words):
        list(read_segment(data))


def test_a_ledger_with_a_gap_or_without_its_beginning_is_refused(build: Any) -> None:
    opened = Line(sequence=0, at_ms=0, kind="pool_opened", record=msgspec.Raw(build.pool_spec().to_bytes()))
    with pytest.raises(PeerFault, match="first segment is missing"):
        read_history([Line(sequence=5, at_ms=0, kind="snapshot")])
    with pytest.raises(PeerFault, match="entry 1 is missing, 2 follows"):
        read_history([opened, Line(sequence=2, at_ms=0, kind="snapshot")])
    with pytest.raises(PeerFault, match="unknown kind"):
        read_history([opened, Line(sequence=1, at_ms=0, kind="bribe", record=msgspec.Raw(b"{}"))])
    with pytest.raises(PeerFault, match="damaged"):
        read_history([opened, Line(sequence=1, at_ms=0, kind="submitted", record=msgspec.Raw(b"{}"))])
