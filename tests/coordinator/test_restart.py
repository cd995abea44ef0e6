"""What survives: restarts, kill -9 in the middle of submissions, snapshots, full disks; and what a person is told."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from farflung.api.errors import Refused
from farflung.api.server.listening import bound_socket
from farflung.coordinator import service
from farflung.coordinator.clock import PoolClock
from farflung.coordinator.journal import Snapshot, decode
from farflung.errors import OurFault, Transient, UserError
from farflung.state.event_log import SqlEventLog
from farflung.state.memory_log import MemoryEventLog
from farflung.store.object_store import ObjectStore
from farflung.wire.node import Role
from farflung.wire.verdict import RejectReason, SlotState


async def test_a_restart_changes_nothing_that_was_acknowledged(start: Any) -> None:
    async with start() as pool:
        publication = await pool.publish()
        accepted = await pool.accepted("w1")
        submitted = await pool.submitted("w2")
        receipt = await (await pool.worker("w2")).submit(submitted)
        lease = await pool.leased("w3")
        uploaded = await pool.uploaded(lease)
        outcomes = await (await pool.trainer()).outcomes()
        status = await (await pool.trainer()).status()
    async with start() as pool:
        trainer = await pool.trainer()
        assert await trainer.last_publication() == publication
        assert await trainer.outcomes() == outcomes
        assert outcomes[0].submission == accepted
        again = await trainer.status()
        assert (again.slots, again.drops, again.outstanding_groups) == (
            status.slots,
            status.drops,
            status.outstanding_groups,
        )
        assert await (await pool.worker("w2")).submit(submitted) == receipt
        assert [found.submission for found in await pool.assigned()] == [submitted]
        assert await pool.leased("w3") == lease
        await (await pool.worker("w3")).submit(uploaded)
        await pool.judged(submitted)
        await pool.judged(uploaded, RejectReason.SCHEMA)
        later = await trainer.outcomes(after=outcomes[-1].sequence)
        assert [(found.sequence, found.slot, found.state) for found in later] == [
            (1, 1, SlotState.ACCEPTED),
            (2, 2, SlotState.REJECTED),
        ]


async def test_tasks_and_draws_of_a_run_stay_the_same_after_a_restart(start: Any) -> None:
    """The secret is in the journal: a re-leased slot has the tasks that it had."""
    async with start() as pool:
        await pool.publish()
        first = await pool.leased("w1")
    async with start() as pool:
        assert (await pool.leased("w1")).task_indices == first.task_indices


async def test_a_snapshot_stands_for_the_whole_journal(start: Any, tmp_path: Path) -> None:
    async with start(snapshot_every_events=20) as pool:
        await pool.publish()
        for _ in range(7):
            await pool.accepted("w1")
            await pool.publish(await (await pool.trainer()).outcomes())
        await pool.accepted("w1")
        await pool.leased("w2")
        trainer = await pool.trainer()
        before = (await trainer.outcomes(), await trainer.status(), await trainer.last_publication())
        lease = await pool.leased("w2")
    log = SqlEventLog(f"sqlite:///{tmp_path}/log.db")
    entries = list(log.replay())
    log.close()
    assert isinstance(decode(entries[0]), Snapshot)
    assert 1 < len(entries) <= 21
    assert entries[0].sequence > 15
    async with start(snapshot_every_events=20) as pool:
        trainer = await pool.trainer()
        outcomes, status, publication = before
        assert await trainer.outcomes() == outcomes
        assert await trainer.last_publication() == publication
        again = await trainer.status()
        assert (again.slots, again.tokens_generated) == (status.slots, status.tokens_generated)
        assert await pool.leased("w2") == lease
        await pool.publish(outcomes)


async def test_a_run_folder_of_another_pool_is_refused_with_the_rule_that_differs(start: Any, build: Any) -> None:
    """prime-rl#2304, case 61."""
    async with start():
        pass
    with pytest.raises(UserError, match="group_size was 2 and is 3 now"):
        async with start(build.pool_spec(group_size=3)):
            pass
    async with start():
        pass


async def test_a_busy_port_is_explained(start: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} on 127.0.0.1 is in use"):
            async with start(port=port):
                pass


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
async def test_a_wrong_host_is_explained(start: Any, host: str) -> None:
    with pytest.raises(UserError, match=r"no address of this machine|cannot listen on"):
        async with start(host=host):
            pass


@pytest.mark.parametrize("name", ["store_url", "database_url"])
async def test_a_place_that_is_not_given_is_asked_for(start: Any, name: str) -> None:
    with pytest.raises(UserError, match=f"coordinator.{name} is empty"):
        async with start(**{name: ""}):
            pass


async def test_a_second_coordinator_on_the_same_log_is_refused(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farflung.state.event_log.LOCK_WAIT_S", 0.05)
    async with start() as pool:
        with pytest.raises(UserError, match="another process has it open"):
            async with start():
                pass
        await pool.publish()


async def test_a_full_disk_ends_the_coordinator_without_a_false_receipt(tmp_path: Path, build: Any) -> None:
    """Callers see a passing trouble, the person sees the cause."""
    log = MemoryEventLog(capacity=3)
    stop, spec = asyncio.Event(), build.pool_spec()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with bound_socket("127.0.0.1", 0, "coordinator.port") as listener:
        task = asyncio.create_task(
            service.serve(
                build.config_for(tmp_path),
                spec,
                ObjectStore("memory://"),
                log,
                listener,
                tokens=None,
                stop=stop,
                on_listening=listening.set_result,
                clock=PoolClock,
            )
        )
        pool = build.pool(spec, await listening, tmp_path)
        async with pool.clients:
            await pool.publish()
            uploaded = await pool.uploaded(await pool.leased())
            worker = await pool.worker()
            with pytest.raises(Transient):
                await worker.submit(uploaded)
        with pytest.raises(OurFault, match="full"):
            await asyncio.wait_for(task, 10)
    assert [entry.kind for entry in log.entries] == ["pool_opened", "published", "lease_granted"]


COORDINATOR = """
import asyncio, sys
import msgspec
from farflung.coordinator.config import CoordinatorConfig
from farflung.coordinator.service import run
from farflung.wire.pool import PoolSpec

async def main():
    config = CoordinatorConfig.model_validate_json(sys.argv[1])
    spec = PoolSpec.from_bytes(sys.argv[2].encode())
    await run(config, spec, tokens=None, stop=asyncio.Event(), on_listening=lambda url: print(url, flush=True))

asyncio.run(main())
"""


class Process:
    """A coordinator as its own process."""

    def __init__(self, folder: Path, build: Any, port: int) -> None:
        config = build.config_for(folder, port=port)
        arguments = [config.model_dump_json(), build.pool_spec(max_outstanding_groups=2000).to_bytes().decode()]
        self.process = subprocess.Popen(
            [sys.executable, "-c", COORDINATOR, *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


async def test_kill_9_in_the_middle_of_submissions_loses_no_receipt(tmp_path: Path, build: Any) -> None:
    """Four workers submit, a validator judges; the coordinator is killed in between; every receipt still holds."""
    receipts: dict[str, Any] = {}
    arrived: asyncio.Queue[str] = asyncio.Queue()
    submissions: dict[str, Any] = {}
    is_over = False

    async def work(pool: Any, node: str) -> None:
        while not is_over:
            try:
                submission = await pool.uploaded(await pool.leased(node))
                submissions[submission.digest()] = submission
                receipts[submission.digest()] = await (await pool.worker(node)).submit(submission)
                arrived.put_nowait(submission.digest())
            except Transient:
                await asyncio.sleep(0.02)

    async def judge(pool: Any) -> None:
        while not is_over:
            try:
                for assignment in await pool.assigned("v1", max_count=5, wait_s=0.2):
                    await pool.judged(assignment.submission)
            except (Transient, Refused):  # who held what is forgotten by a coordinator that is killed
                await asyncio.sleep(0.02)

    seen: list[Any] = []

    async def read(pool: Any) -> None:
        while not is_over:
            try:
                seen.extend(await (await pool.trainer()).outcomes(after=len(seen) - 1, wait_s=0.2))
            except Transient:
                await asyncio.sleep(0.02)

    first = Process(tmp_path, build, 0)
    port = int(first.url.rsplit(":", 1)[1])
    pool = build.pool(build.pool_spec(max_outstanding_groups=2000), first.url, tmp_path)
    running = first
    async with pool.clients:
        await pool.publish()
        tasks = [asyncio.create_task(work(pool, f"w{index}")) for index in range(4)]
        tasks += [asyncio.create_task(judge(pool)), asyncio.create_task(read(pool))]
        for _ in range(20):
            await arrived.get()
        running.kill()
        while not arrived.empty():
            arrived.get_nowait()
        running = await asyncio.to_thread(Process, tmp_path, build, port)
        for _ in range(5):
            await arrived.get()
        is_over = True
        await asyncio.gather(*tasks)
        running.kill()
        running = await asyncio.to_thread(Process, tmp_path, build, port)
        for digest, receipt in receipts.items():
            submission = submissions[digest]
            assert await (await pool.worker(submission.node)).submit(submission) == receipt
        outcomes = []
        while page := await (await pool.trainer()).outcomes(after=len(outcomes) - 1):
            outcomes += page
        assert [outcome.sequence for outcome in outcomes] == list(range(len(outcomes))), "the feed has no gap"
        assert outcomes[: len(seen)] == seen, "what the trainer saw is still so"
        waiting = await pool.assigned("v1", max_count=64)
        held = {found.submission.digest() for found in [*outcomes, *waiting]}
        assert receipts.keys() <= held, "each receipt is judged or waits to be"
        assert len({outcome.slot for outcome in outcomes}) == len(outcomes)
        running.kill()


def test_it_starts_without_torch_and_soon() -> None:
    script = textwrap.dedent(
        """
        import sys
        import farflung.coordinator.service
        print([name for name in ("torch", "transformers", "pyarrow") if name in sys.modules])
        """
    )
    started_s = time.monotonic()
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    print(f"import: {time.monotonic() - started_s:.2f} s")
    assert output.strip() == "[]"


async def test_many_workers_at_once(start: Any, build: Any) -> None:
    """The figure is for the log; what is tested is that nothing is lost when 16 submit at the same time."""
    async with start(build.pool_spec(max_outstanding_groups=2000)) as pool:
        await pool.publish()

        async def work(node: str) -> None:
            for _ in range(5):
                await pool.submitted(node)

        started_s = time.monotonic()
        await asyncio.gather(*(work(f"w{index}") for index in range(16)))
        elapsed_s = time.monotonic() - started_s
        print(f"{80 / elapsed_s:.0f} slots/s (lease, ticket, upload, submit each)")
        status = await (await pool.client(Role.TRAINER, "trainer")).status()
        assert status.slots["submitted"] == 80
