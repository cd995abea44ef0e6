"""A worker against a running coordinator: what it hands in, what it gives back, what it outlives, how it ends."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.patience import Patience
from farflung.broadcast.fetch import PolicyFetcher
from farflung.engine.base import Cancelled
from farflung.engine.torch_engine import TorchEngine
from farflung.errors import PeerFault, Transient, UserError
from farflung.wire.canonical import sha256_hex
from farflung.wire.node import PoolStatus, Role
from farflung.wire.pool import EnvArg, EnvironmentSpec, PoolSpec
from farflung.wire.rollout_file import read_rollouts
from farflung.wire.submission import Assignment
from farflung.wire.verdict import RejectReason
from farflung.worker import service
from farflung.worker.config import WorkerConfig
from running_pool import Crew, coordinator, crew, publish_version, until
from tiny_pool import FAST, pool_spec, tiny_policy

POOL = pool_spec()


def hasty_fetcher(get_chunk: Any, cache: Any) -> PolicyFetcher:
    """Tries as often as the true one, without pauses."""

    async def no_pause(_: float) -> None: ...

    return PolicyFetcher(get_chunk, cache, sleep=no_pause)


@dataclass
class Place:
    url: str
    pool: PoolSpec
    trainer: CoordinatorClient
    crew: Crew

    async def publish(self, seed: int = 0) -> int:
        return (await publish_version(self.trainer, self.pool, tiny_policy(seed))).manifest.policy_version

    async def run(self, stop: asyncio.Event, **config: Any) -> None:
        settings = WorkerConfig.model_validate({**FAST, "node": "sampler", "max_batch_rows": 16, **config})
        await asyncio.wait_for(service.run(settings, url=self.url, stop=stop), 60)

    @asynccontextmanager
    async def working(self, **config: Any) -> AsyncIterator[tuple["asyncio.Task[None]", asyncio.Event]]:
        """A worker in the background, asked to stop when the block is left unless it has ended by itself."""
        stop = asyncio.Event()
        task = asyncio.create_task(self.run(stop, **config))
        try:
            yield task, stop
            if not task.done():
                stop.set()
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def handed_in(self, count: int = 1) -> list[Assignment]:
        """Submissions that wait for a verdict, as the validator gets them."""
        found: list[Assignment] = []
        async with asyncio.timeout(20):
            while len(found) < count:
                held = [assignment.submission.digest() for assignment in found]
                found += await self.crew.validator.assignments(8, wait_s=0.5, held=held)
        return found

    async def reject(self, assignments: Sequence[Assignment]) -> None:
        """So that their places in the pool are free again."""
        for assignment in assignments:
            await self.crew.judge(assignment.submission, RejectReason.SCHEMA)

    async def status_once(self, condition: Callable[[PoolStatus], bool]) -> PoolStatus:
        async with asyncio.timeout(20):
            while not condition(status := await self.trainer.status()):  # noqa: ASYNC110 - it is another machine's
                await asyncio.sleep(0.02)
        return status


@asynccontextmanager
async def a_place(folder: Path, pool: PoolSpec = POOL, **changes: Any) -> AsyncIterator[Place]:
    async with (
        coordinator(folder, pool, **changes) as url,
        crew(url, pool) as workers,
        CoordinatorClient(url, node="trainer", role=Role.TRAINER) as trainer,
    ):
        yield Place(url, pool, trainer, workers)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with a_place(tmp_path) as made:
        await made.publish()
        yield made


async def test_a_lease_becomes_a_file_and_a_claim_that_agree(place: Place) -> None:
    async with place.working():
        (assignment,) = (await place.handed_in())[:1]
    lease, submission = assignment.lease, assignment.submission
    data = await place.crew.validator.download(submission.file_key, POOL.max_file_bytes)
    assert (sha256_hex(data), len(data)) == (submission.file_digest, submission.file_bytes)
    rollouts = read_rollouts(data, pool_digest=POOL.digest(), max_rollouts=8, max_tokens_per_list=8)
    assert len(rollouts) == submission.num_rollouts == 8
    assert submission.num_tokens == sum(len(rollout.completion_tokens) for rollout in rollouts)
    assert {rollout.policy_version for rollout in rollouts} == {lease.policy_version} == {0}
    assert [rollout.task_id for rollout in rollouts[::4]] == [f"train/{index}" for index in lease.task_indices]
    assert (submission.node, submission.lease_id, submission.slot) == ("sampler", lease.lease_id, lease.slot)


def budgeted_pool() -> PoolSpec:
    """Three tokens for slow machines, three or four for others, told as one more digit in front."""
    args: dict[str, EnvArg] = {"num_digits": 2, "budget.targets": "3,4", "budget.told": "{target}"}
    environment = EnvironmentSpec(
        name="budgeted:sort-digits",
        args={**args, "budget.where": "start"},
        seed=POOL.environment.seed,
        num_tasks=POOL.environment.num_tasks,
        target_lengths=(3, 4),
    )
    return pool_spec(environment=environment, capability_classes={"slow": (3,)}, max_outstanding_groups=16)


async def test_a_worker_works_in_the_class_that_it_measures(tmp_path: Path) -> None:
    """A slot takes a moment of a lease of 30 seconds, so the class of the second one has the longer targets."""
    async with a_place(tmp_path, budgeted_pool()) as place:
        await place.publish()
        async with place.working(capability_class="auto"):
            assignments = await place.handed_in(3)
    leases = [assignment.lease for assignment in assignments[:3]]
    assert [lease.capability_class for lease in leases] == ["slow", "any", "any"]
    assert leases[0].target_lengths == (3, 3)
    assert {target for lease in leases[1:] for target in lease.target_lengths} == {3, 4}


async def test_a_worker_of_a_class_that_the_pool_does_not_have_says_so(tmp_path: Path) -> None:
    async with a_place(tmp_path, budgeted_pool()) as place:
        with pytest.raises(UserError, match="any, auto, slow"):
            await place.run(asyncio.Event(), capability_class="slwo")


async def test_it_goes_on_with_the_new_version_and_a_file_has_one(place: Place) -> None:
    async with place.working():
        old = await place.handed_in(4)
        await place.publish(1)
        await place.reject(old)
        new = await place.handed_in(4)
    assert [assignment.submission.policy_version for assignment in old + new] == [0] * 4 + [1] * 4
    for submission in (assignment.submission for assignment in old + new):
        data = await place.crew.validator.download(submission.file_key, POOL.max_file_bytes)
        rollouts = read_rollouts(data, pool_digest=POOL.digest(), max_rollouts=8, max_tokens_per_list=8)
        assert {rollout.policy_version for rollout in rollouts} == {submission.policy_version}


async def test_it_says_what_it_does_and_counts_what_was_received(place: Place) -> None:
    async with place.working():
        await place.handed_in(2)
        await asyncio.sleep(0.3)
    status = await place.trainer.status()
    (heartbeat,) = [node.heartbeat for node in status.nodes if node.heartbeat.role is Role.WORKER]
    assert (heartbeat.node, heartbeat.policy_version) == ("sampler", 0)
    assert heartbeat.tokens == status.tokens_generated > 0
    assert heartbeat.busy_s > 0


async def test_a_worker_without_a_name_takes_one_of_its_own(place: Place) -> None:
    async with place.working(node=""):
        (assignment,) = (await place.handed_in())[:1]
    assert assignment.submission.node not in ("", "sampler")


# -- stopped ----------------------------------------------------------------------------------------------------------


async def test_a_stop_in_the_middle_of_sampling_gives_the_lease_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun = threading.Event()

    def endless(self: TorchEngine, *_: Any, **__: Any) -> Any:
        has_begun.set()
        assert self._should_stop is not None
        while not self._should_stop():
            time.sleep(0.001)
        raise Cancelled

    monkeypatch.setattr(TorchEngine, "generate", endless)
    async with place.working():
        await until(has_begun.is_set)
        assert (await place.trainer.status()).slots["leased"] == 1
    status = await place.trainer.status()
    assert (status.slots["leased"], status.slots["vacant"]) == (0, 1)


@pytest.mark.parametrize("call", ["ticket", "upload", "submit"])
async def test_a_stop_while_handing_in_gives_the_lease_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    has_begun = asyncio.Event()

    async def endless(*_: Any) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(CoordinatorClient, call, endless)
    async with place.working():
        await has_begun.wait()
    assert (await place.trainer.status()).slots["vacant"] == 1


async def test_a_stop_while_waiting_for_the_first_policy_or_for_a_lease_ends_at_once(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place:
        async with place.working():
            await place.status_once(lambda status: _activity(status) == "waiting for first policy")
        await place.publish()
        for _ in range(4):
            assert await place.crew.submit() is not None  # every place of the pool is taken
        async with place.working():
            await place.status_once(lambda status: _activity(status) == "waiting for lease")
        assert (await place.trainer.status()).slots["submitted"] == 4


def _activity(status: PoolStatus) -> str:
    return next((node.heartbeat.activity for node in status.nodes if node.heartbeat.role is Role.WORKER), "")


async def test_a_run_that_is_over_ends_it_wherever_it_waits(place: Place) -> None:
    async with place.working() as (task, _):
        await place.handed_in(4)  # every place of the pool is taken, so it waits for a lease
        await place.trainer.finish()
        await asyncio.wait_for(task, 10)


async def test_a_coordinator_that_stays_away_is_said() -> None:
    settings = WorkerConfig.model_validate({**FAST, "node": "sampler", "unreachable_s": 0.2})
    with pytest.raises(Transient, match=r"gave up after 0\.2 s"):
        await service.run(settings, url="http://127.0.0.1:9", stop=asyncio.Event())


# -- outlived ---------------------------------------------------------------------------------------------------------


async def test_a_restart_of_the_coordinator_is_outlived(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place:
        await place.publish()
        port = int(place.url.rpartition(":")[2])
        stop = asyncio.Event()
        task = asyncio.create_task(place.run(stop))
        await place.handed_in(1)
    async with a_place(tmp_path, port=port) as place:
        await place.reject(await place.handed_in(4))
        await place.handed_in(4)
        stop.set()
        await task


async def test_a_restart_in_the_middle_of_a_fetch_is_outlived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunks stay out of reach for longer than a fetch tries; the watch looks again."""
    original, num_failures = CoordinatorClient.get_chunk, 0

    async def flaky(self: CoordinatorClient, sha256: str, num_bytes: int) -> bytes:
        nonlocal num_failures
        num_failures += 1
        if num_failures <= 12:
            raise Transient("away")
        return await original(self, sha256, num_bytes)

    monkeypatch.setattr(CoordinatorClient, "get_chunk", flaky)
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    monkeypatch.setattr(service, "PolicyFetcher", hasty_fetcher)
    async with a_place(tmp_path) as place:
        await place.publish()
        async with place.working():
            await place.handed_in()
    assert num_failures > 12


async def test_a_version_whose_chunks_are_gone_is_passed_over_for_a_newer_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, is_gone = CoordinatorClient.get_chunk, True

    async def get_chunk(self: CoordinatorClient, sha256: str, num_bytes: int) -> bytes:
        if is_gone:
            raise Refused("not_found", "collected")
        return await original(self, sha256, num_bytes)

    monkeypatch.setattr(CoordinatorClient, "get_chunk", get_chunk)
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    monkeypatch.setattr(service, "PolicyFetcher", hasty_fetcher)
    async with place.working():
        await place.status_once(lambda status: _activity(status) == "waiting for first policy")
        await place.publish(1)
        is_gone = False
        assert (await place.handed_in())[0].submission.policy_version == 1


async def test_a_refused_submission_costs_the_slot_and_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, num_refused = CoordinatorClient.submit, 0

    async def submit(self: CoordinatorClient, submission: Any) -> Any:
        nonlocal num_refused
        if num_refused < 2:
            num_refused += 1
            await self.forfeit(service.Forfeit(node="sampler", lease_id=submission.lease_id))  # it ran out
        return await original(self, submission)

    monkeypatch.setattr(CoordinatorClient, "submit", submit)
    async with place.working():
        await place.handed_in(2)
    assert num_refused == 2


async def test_a_lease_that_cannot_be_worked_on_is_given_back_and_the_loop_goes_on(tmp_path: Path) -> None:
    pool = pool_spec(max_prompt_tokens=2, max_attempts=1)
    async with a_place(tmp_path, pool) as place:
        await place.publish()
        async with place.working():
            status = await place.status_once(lambda status: status.slots.get("forfeited", 0) >= 3)
        assert status.tokens_generated == 0


async def test_an_engine_that_breaks_ends_the_worker_with_its_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a broken engine")

    monkeypatch.setattr(TorchEngine, "generate", broken)
    async with place.working() as (task, _):
        with pytest.raises(RuntimeError, match="a broken engine"):
            await asyncio.wait_for(task, 10)


async def test_a_coordinator_that_lies_about_the_weights_ends_the_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lie(self: CoordinatorClient, sha256: str, num_bytes: int) -> bytes:
        return b"\0" * num_bytes

    monkeypatch.setattr(CoordinatorClient, "get_chunk", lie)
    monkeypatch.setattr(service, "PolicyFetcher", hasty_fetcher)
    async with place.working() as (task, _):
        with pytest.raises(PeerFault):
            await asyncio.wait_for(task, 10)


async def test_a_slow_machine_sleeps_in_proportion_to_its_work(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(self: Patience, seconds: float) -> None:
        pauses.append(seconds)

    times = iter([100.0 + 3.0 * number for number in range(1000)])
    monkeypatch.setattr(Patience, "sleep", sleep)
    monkeypatch.setattr(service.Worker, "_sample", _timed(service.Worker._sample, times))
    async with place.working(speed=0.25):
        await place.handed_in(1)
    assert pauses[0] == pytest.approx(9.0)


def _timed(original: Any, times: Any) -> Any:
    """Samples as before, but says that it took three seconds."""

    def sample(self: Any, *args: Any) -> Any:
        slot = original(self, *args)
        started_s = next(times)
        self._sampling_s = next(times) - started_s
        return slot

    return sample


async def test_in_deterministic_mode_it_loads_the_version_that_its_lease_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two slots a batch, one version behind: slots 0 to 3 are of version 0 whatever is the newest, 4 and 5 of 1."""
    monkeypatch.setattr(service, "compute_deterministically", lambda: None)  # it is for the whole process
    rows: list[int] = []
    build = TorchEngine.__init__

    def watched(self: TorchEngine, config: Any, **options: Any) -> None:
        rows.append(options["max_batch_rows"])
        build(self, config, **options)

    monkeypatch.setattr(TorchEngine, "__init__", watched)
    pool = pool_spec(deterministic_seed=0, max_outstanding_groups=100)
    async with a_place(tmp_path, pool) as place:
        await place.publish(0)
        await place.publish(1)  # as if it were trained already
        async with place.working():
            submissions = [found.submission for found in await place.handed_in(6)]
    versions = {submission.slot: submission.policy_version for submission in submissions}
    assert versions == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1}
    assert rows == [256], "a number of rows is a shape"
