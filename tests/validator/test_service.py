"""A validator against a running coordinator: honest work and every kind of dishonest, its own trouble, how it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.envs.registry import load_environment
from farflung.errors import PeerFault, Transient, UserError
from farflung.validator import fault_watch, service
from farflung.validator.config import ValidatorConfig
from farflung.wire.batch import SlotOutcome
from farflung.wire.node import PoolStatus, Role
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.verdict import SlotState
from running_pool import Crew, coordinator, crew, publish_version
from tiny_pool import FAST, NUM_TASKS, description, environment, pool_spec, tiny_policy

POOL = pool_spec()


@dataclass
class Place:
    url: str
    pool: PoolSpec
    trainer: CoordinatorClient
    crew: Crew

    async def run(self, stop: asyncio.Event, **config: Any) -> None:
        settings = ValidatorConfig.model_validate({**FAST, "node": "judge", **config})
        await asyncio.wait_for(service.run(settings, url=self.url, stop=stop), 60)

    @asynccontextmanager
    async def judging(self, **config: Any) -> AsyncIterator["asyncio.Task[None]"]:
        """A validator in the background, asked to stop when the block is left unless it has ended by itself."""
        stop = asyncio.Event()
        task = asyncio.create_task(self.run(stop, **config))
        try:
            yield task
            if not task.done():
                stop.set()
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def submit(self, count: int = 1, tamper: Callable[[list[Rollout]], Any] | None = None) -> list[int]:
        self.crew.tamper = tamper or (lambda rollouts: rollouts)
        slots: list[int] = []
        while len(slots) < count:
            submission = await self.crew.submit()
            if submission is not None:
                slots.append(submission.slot)
        return slots

    async def outcomes(self, count: int) -> list[SlotOutcome]:
        found: list[SlotOutcome] = []
        async with asyncio.timeout(20):
            while len(found) < count:
                found += await self.trainer.outcomes(found[-1].sequence if found else -1, wait_s=1.0)
        return found

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
        if await trainer.last_publication() is None:
            await publish_version(trainer, pool, tiny_policy())
        yield Place(url, pool, trainer, workers)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with a_place(tmp_path) as made:
        yield made


async def test_honest_work_is_accepted_with_the_environments_rewards(place: Place) -> None:
    async with place.judging():
        slots = await place.submit(3)
        outcomes = await place.outcomes(3)
    assert [(outcome.slot, outcome.state) for outcome in outcomes] == [(slot, SlotState.ACCEPTED) for slot in slots]
    for outcome in outcomes:
        assert outcome.verdict is not None
        assert outcome.verdict.validator == "judge"
        evidence = await place.trainer.evidence(outcome.verdict)
        assert len(evidence.rewards) == 8
        assert {result.reward for result in evidence.rewards} <= {0.0, 1.0}


# -- dishonest work, each with the reason that it is rejected for ----------------------------------------------------


def with_first(**changes: Any) -> Callable[[list[Rollout]], list[Rollout]]:
    return lambda rollouts: [replace(rollouts[0], **changes), *rollouts[1:]]


def completion(*ids: int, stop: StopReason = StopReason.LENGTH) -> dict[str, Any]:
    return {
        "completion_tokens": np.array(ids, dtype=np.int32),
        "logprobs": np.full(len(ids), -1.0, dtype=np.float32),
        "stop_reason": stop,
    }


def of_other_tasks(rollouts: list[Rollout]) -> list[Rollout]:
    """Easier tasks of the same environment, honestly sampled."""
    return [replace(rollout, task_id=f"train/{(int(rollout.task_id[6:]) + 1) % 90}") for rollout in rollouts]


def with_other_prompt(rollouts: list[Rollout]) -> list[Rollout]:
    """The right task's name over another prompt."""
    return [replace(rollout, prompt_tokens=rollout.prompt_tokens[::-1].copy()) for rollout in rollouts]


def of_another_version(rollouts: list[Rollout]) -> list[Rollout]:
    return [replace(rollout, policy_version=7) for rollout in rollouts]


def garbage(rollouts: list[Rollout]) -> bytes:
    return b"PAR1 this is no rollout file PAR1"


def of_another_pool(rollouts: list[Rollout]) -> bytes:
    return write_rollouts(rollouts, pool_spec(max_attempts=7).digest())


MALLORYS: list[tuple[Callable[[list[Rollout]], Any], str]] = [
    (garbage, "footer_limits"),
    (of_another_pool, "wrong_pool"),
    (of_another_version, "wrong_lease"),
    (lambda rollouts: rollouts[::-1], "rollout_count"),
    (of_other_tasks, "wrong_task"),
    (with_first(env="other"), "wrong_task"),
    (with_other_prompt, "prompt"),
    (with_first(**completion(3, 3, 63)), "token_range"),
    (with_first(**completion(3, 3, 64)), "token_range"),
    (with_first(**completion(1, 3, 3)), "termination"),
    (with_first(**completion(3, 3)), "termination"),
    (with_first(**completion(3, 3, 1)), "termination"),
    (with_first(target_length=4), "target_length"),
    (
        with_first(
            logprobs=np.full(3, 0.5, dtype=np.float32),
            completion_tokens=np.array([3, 3, 3], dtype=np.int32),
            stop_reason=StopReason.LENGTH,
        ),
        "logprob_range",
    ),
]


async def test_each_mallory_is_rejected_for_what_she_did_and_the_pool_goes_on(place: Place) -> None:
    async with place.judging():
        expected = []
        for mallory, reason in MALLORYS:
            (slot,) = await place.submit(1, mallory)
            expected.append((slot, SlotState.REJECTED, reason))
        (honest,) = await place.submit(1)
        outcomes = await place.outcomes(len(MALLORYS) + 1)
    found = [(outcome.slot, outcome.state, outcome.verdict and outcome.verdict.reason) for outcome in outcomes]
    assert found == [*expected, (honest, SlotState.ACCEPTED, None)]


THREES = description().tokenizer.encode("333")


# -- trouble of its own -----------------------------------------------------------------------------------------------


def rough_spec(**args: Any) -> PoolSpec:
    return pool_spec(environment=EnvironmentSpec(name="rough", args=args, seed=0, num_tasks=NUM_TASKS))


@asynccontextmanager
async def a_rough_place(folder: Path, **args: Any) -> AsyncIterator[Place]:
    """An environment that breaks where it grades, and not where its tasks are sampled."""
    async with a_place(folder, rough_spec(**args)) as place:
        place.crew.environment = load_environment("rough", 0, {})
        yield place


async def test_a_crash_of_its_own_never_accepts_and_never_blames(tmp_path: Path) -> None:
    """The only validator tries as often as it may, then the slot is set aside, and the status says so."""
    async with a_rough_place(tmp_path, fault="die", where="task") as place, place.judging(max_assignments=1):
        slots = await place.submit(1)
        (outcome,) = await place.outcomes(1)
        status = await place.trainer.status()
    assert (outcome.slot, outcome.state, outcome.verdict) == (slots[0], SlotState.EXPIRED, None)
    assert status.drops == {"validator_fault": 2}
    assert status.grading_faults == {"rough: not judged": 24}, "three attempts at eight completions"


async def test_completions_that_cannot_be_graded_are_accepted_without_reward_and_counted(tmp_path: Path) -> None:
    async with a_rough_place(tmp_path, fault="raise", only_text="333") as place, place.judging() as task:
        await place.submit(4, with_first(**completion(*THREES)))
        outcomes = await place.outcomes(4)
        evidence = [await place.trainer.evidence(outcome.verdict) for outcome in outcomes if outcome.verdict]
        status = await place.trainer.status()
        assert not task.done(), "others were graded, so nothing is broken"
    assert {outcome.state for outcome in outcomes} == {SlotState.ACCEPTED}
    assert [found.rewards[0].reward for found in evidence] == [None] * 4
    assert status.grading_faults["rough: RuntimeError"] >= 4


async def test_an_environment_that_grades_nothing_stops_the_run_with_a_sentence(tmp_path: Path) -> None:
    async with a_rough_place(tmp_path, fault="raise") as place, place.judging(max_assignments=1) as task:
        await place.submit(fault_watch.MAX_BROKEN)
        with pytest.raises(
            UserError, match="environment rough cannot grade anything: 3 submissions in a row"
        ) as caught:
            await asyncio.wait_for(asyncio.shield(task), 30)
        status = await place.trainer.status()
    assert "RuntimeError: a bug in the grader" in str(caught.value)
    assert status.grading_faults == {"rough: RuntimeError": 24.0}


async def test_tasks_that_are_never_built_stop_the_run_with_a_sentence(tmp_path: Path) -> None:
    async with a_rough_place(tmp_path, fault="raise", where="task") as place, place.judging(max_assignments=1) as task:
        await place.submit(3)
        with pytest.raises(UserError, match="8 submissions in a row could not be judged with environment rough"):
            await asyncio.wait_for(asyncio.shield(task), 30)


async def test_an_environment_that_is_not_installed_here_is_said_at_once(tmp_path: Path) -> None:
    spec = EnvironmentSpec(name="elsewhere", seed=0, num_tasks=NUM_TASKS)
    async with a_place(tmp_path, pool_spec(environment=spec)) as place, place.judging() as task:
        with pytest.raises(UserError, match='unknown environment "elsewhere"'):
            await asyncio.wait_for(asyncio.shield(task), 30)


async def test_a_task_that_it_cannot_build_does_not_kill_it(tmp_path: Path) -> None:
    """A pool that says it has more tasks than the validator's version of the environment."""
    spec = EnvironmentSpec(name="sort-digits", args={"num_digits": 2}, seed=0, num_tasks=10**9)
    async with a_place(tmp_path, pool_spec(environment=spec)) as place, place.judging() as task:
        lease = await place.crew.lease()
        assert lease is not None
        assert max(lease.task_indices) > 90
        place.crew.environment = _Endless(environment())  # type: ignore[assignment]
        (slot,) = await place.submit(1)
        (outcome,) = await place.outcomes(1)
        assert (outcome.slot, outcome.state, outcome.verdict) == (slot, SlotState.EXPIRED, None)
        assert not task.done()


class _Endless:
    """An environment whose tasks go on for ever."""

    def __init__(self, honest: Any) -> None:
        self._honest = honest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def task(self, split: Any, index: int, target_length: int = 0) -> Any:
        return self._honest.task(split, index % 90, target_length)


@pytest.mark.parametrize(
    "error", [Refused("not_found", "not there"), PeerFault("too_large", "more than announced")], ids=["gone", "odd"]
)
async def test_a_file_that_does_not_come_is_not_held_against_the_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    original, num_asked = CoordinatorClient.download, 0

    async def download(self: CoordinatorClient, key: str, max_bytes: int) -> bytes:
        nonlocal num_asked
        num_asked += 1
        if num_asked == 1:
            raise error
        return await original(self, key, max_bytes)

    monkeypatch.setattr(CoordinatorClient, "download", download)
    async with place.judging():
        (slot,) = await place.submit(1)
        (outcome,) = await place.outcomes(1)
    assert (outcome.slot, outcome.state) == (slot, SlotState.ACCEPTED)


async def test_a_verdict_that_comes_too_late_is_no_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    original, num_late = CoordinatorClient.judge, 0

    async def judge(self: CoordinatorClient, judgement: Any) -> None:
        nonlocal num_late
        if num_late == 0:
            num_late += 1
            raise Refused("unknown_submission", "forgotten")
        await original(self, judgement)

    monkeypatch.setattr(CoordinatorClient, "judge", judge)
    async with place.judging():
        await place.submit(2)
        await place.outcomes(2)
    assert num_late == 1


async def test_a_first_policy_that_is_gone_is_passed_over_for_a_newer_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, num_asked = CoordinatorClient.get_chunk, 0

    async def get_chunk(self: CoordinatorClient, sha256: str, num_bytes: int) -> bytes:
        nonlocal num_asked
        num_asked += 1
        if self.role is Role.VALIDATOR and num_asked <= 2:
            raise Refused("not_found", "collected")
        return await original(self, sha256, num_bytes)

    slots = await place.submit(1)
    monkeypatch.setattr(CoordinatorClient, "get_chunk", get_chunk)
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    async with place.judging():
        assert [outcome.slot for outcome in await place.outcomes(1)] == slots


# -- restarts, ends ---------------------------------------------------------------------------------------------------


async def test_a_restart_of_the_coordinator_is_outlived(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place:
        port = int(place.url.rpartition(":")[2])
        stop = asyncio.Event()
        task = asyncio.create_task(place.run(stop))
        await place.submit(1)
        await place.outcomes(1)
    async with a_place(tmp_path, port=port) as place:
        await place.submit(1)
        assert [outcome.state for outcome in await place.outcomes(2)] == [SlotState.ACCEPTED] * 2
        stop.set()
        await task


async def test_it_judges_by_the_newest_version(place: Place) -> None:
    async with place.judging():
        await place.submit(1)
        (first,) = await place.outcomes(1)
        await publish_version(place.trainer, POOL, tiny_policy(1))
        (slot,) = await place.submit(1)
        outcomes = await place.outcomes(2)
    assert first.verdict is not None
    assert first.verdict.measured["staleness"] == 0
    second = next(outcome for outcome in outcomes if outcome.slot == slot)
    assert second.verdict is not None
    assert second.verdict.measured["staleness"] == 0
    assert second.policy_version == 1


async def test_it_says_what_it_does_and_counts_what_it_judged(place: Place) -> None:
    async with place.judging():
        (slot,) = await place.submit(1)
        num_tokens = place.crew.submissions[slot].num_tokens

        def is_counted(status: PoolStatus) -> bool:
            beats = [node.heartbeat for node in status.nodes if node.heartbeat.role is Role.VALIDATOR]
            return [beat.tokens for beat in beats] == [num_tokens]

        status = await place.status_once(is_counted)
    assert [node.heartbeat.node for node in status.nodes] == ["judge"]


async def test_a_run_that_is_over_ends_it(place: Place) -> None:
    async with place.judging() as task:
        await place.submit(1)
        await place.outcomes(1)
        await place.trainer.finish()
        await asyncio.wait_for(task, 10)


@pytest.mark.parametrize("has_policy", [False, True])
async def test_a_stop_while_waiting_ends_it_at_once(tmp_path: Path, has_policy: bool) -> None:
    async with coordinator(tmp_path, POOL) as url, CoordinatorClient(url, node="trainer", role=Role.TRAINER) as trainer:
        if has_policy:
            await publish_version(trainer, POOL, tiny_policy())
        place = Place(url, POOL, trainer, None)  # type: ignore[arg-type]
        cause = "submissions" if has_policy else "first policy"
        async with place.judging(poll_s=30.0):
            await place.status_once(
                lambda status: [n.heartbeat.activity for n in status.nodes] == [f"waiting for {cause}"]
            )


async def test_a_coordinator_that_stays_away_is_said() -> None:
    settings = ValidatorConfig.model_validate({**FAST, "node": "judge", "unreachable_s": 0.2})
    with pytest.raises(Transient, match=r"gave up after 0\.2 s"):
        await service.run(settings, url="http://127.0.0.1:9", stop=asyncio.Event())


async def test_without_the_pools_token_it_ends_with_what_to_do(tmp_path: Path) -> None:
    tokens = {Role.TRAINER: "t" * 40, Role.VALIDATOR: "v" * 40}
    async with coordinator(tmp_path, POOL, tokens=tokens) as url:
        for token in (None, "t" * 40):
            settings = ValidatorConfig.model_validate({**FAST, "node": "judge"})
            with pytest.raises(Refused, match="show this pool's validator token"):
                await service.run(settings, url=url, token=token, stop=asyncio.Event())
