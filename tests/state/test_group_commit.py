"""Group commit: who waits together is written together, and nobody is told too early."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from farflung.errors import OurFault
from farflung.state.event_log import Entry, SqlEventLog
from farflung.state.group_commit import GroupCommit
from farflung.state.memory_log import MemoryEventLog


class SlowLog(MemoryEventLog):
    """Writes only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.let = threading.Semaphore(0)

    def write(self, entries: Sequence[Entry]) -> None:
        self.begun.set()
        assert self.let.acquire(timeout=10)
        super().write(entries)


async def test_appends_that_wait_at_the_same_time_share_a_transaction() -> None:
    log = SlowLog()
    commits = GroupCommit(log, 0)
    first = asyncio.create_task(commits.append("thing", b"0", 0))
    await asyncio.to_thread(log.begun.wait)
    others = [asyncio.create_task(commits.append("thing", b"x", 0)) for _ in range(50)]
    await asyncio.sleep(0.01)
    assert not first.done()
    log.let.release()
    assert await first == 0
    assert not any(other.done() for other in others)
    log.let.release()
    assert await asyncio.gather(*others) == list(range(1, 51))
    assert log.num_writes == 2
    await commits.close()


async def test_order_is_the_order_of_enqueueing() -> None:
    log = MemoryEventLog()
    commits = GroupCommit(log, 5)
    assert [commits.enqueue("thing", b"%d" % number, 0) for number in range(3)] == [5, 6, 7]
    assert commits.next_sequence == 8
    await commits.committed()
    assert [entry.body for entry in log.entries] == [b"0", b"1", b"2"]
    await commits.close()


async def test_committed_without_anything_to_wait_for_returns_at_once() -> None:
    commits = GroupCommit(MemoryEventLog(), 0)
    await commits.committed()
    await commits.close()


async def test_after_a_failed_write_nothing_is_acknowledged_any_more() -> None:
    log = MemoryEventLog(capacity=2)
    commits = GroupCommit(log, 0)
    await commits.append("thing", b"", 0)
    results = await asyncio.gather(
        *(commits.append("thing", b"", 0) for _ in range(3)), commits.committed(), return_exceptions=True
    )
    assert all(isinstance(result, OurFault) for result in results)
    assert isinstance(await commits.failed, OurFault)
    with pytest.raises(OurFault, match="full"):
        commits.enqueue("thing", b"", 0)
    with pytest.raises(OurFault, match="full"):
        await commits.committed()
    assert len(log.entries) == 1
    await commits.close()


async def test_a_bug_in_the_log_is_a_failed_write_and_not_a_hang(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenLog(MemoryEventLog):
        def write(self, entries: Sequence[Entry]) -> None:
            raise RuntimeError("a bug")

    commits = GroupCommit(BrokenLog(), 0)
    with pytest.raises(OurFault, match="a bug"):
        await asyncio.wait_for(commits.append("thing", b"", 0), 5)
    assert "a bug" in caplog.text
    await commits.close()


async def test_a_caller_that_gives_up_does_not_stop_the_write() -> None:
    log = SlowLog()
    commits = GroupCommit(log, 0)
    task = asyncio.create_task(commits.append("thing", b"0", 0))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    log.let.release()
    await commits.committed()
    assert len(log.entries) == 1
    await commits.close()


async def test_closing_writes_what_is_left(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    commits = GroupCommit(SqlEventLog(url), 0)
    for number in range(10):
        commits.enqueue("thing", b"%d" % number, 0)
    await commits.close()
    log = SqlEventLog(url)
    assert len(list(log.replay())) == 10
    log.close()
