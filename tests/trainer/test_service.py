"""The whole trainer against a running coordinator and a scripted crew: runs, stops, kills, refused steps."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from farflung.errors import OurFault, Transient, UserError
from farflung.evaluation.heldout import Evaluation
from farflung.model.folder import load_folder
from farflung.telemetry.metrics import read_metrics
from farflung.trainer import learner as learner_module
from farflung.trainer import service
from farflung.trainer.canary import Canary
from farflung.trainer.checkpoint import Checkpoints
from farflung.trainer.inbox import Inbox
from farflung.trainer.learner import Learner
from farflung.trainer.marks import Mark, Marks, pass_by
from farflung.trainer.policy import Policy
from farflung.trainer.publisher import Publisher
from farflung.trainer.step import StepResult
from farflung.wire.manifest import Publication
from farflung.wire.pool import PoolSpec
from running_pool import Crew, check_history, coordinator, crew, publications, until, working
from tiny_pool import SEED, description, pool_spec, tiny_policy, trainer_config

POOL = pool_spec()


class Killed(Exception):
    """The process is gone: nothing after this point happens."""


@dataclass
class Place:
    """A coordinator with its crew, and the folder of the trainer's run."""

    folder: Path
    url: str
    crew: Crew

    async def train(self, stop: asyncio.Event | None = None, marks: Marks = pass_by, **config: Any) -> None:
        await asyncio.wait_for(
            service.run(
                trainer_config(**config),
                url=self.url,
                run_folder=self.folder,
                seed=SEED,
                stop=stop or asyncio.Event(),
                marks=marks,
            ),
            60,
        )

    @asynccontextmanager
    async def training(self, **config: Any) -> AsyncIterator[tuple[asyncio.Task[None], asyncio.Event]]:
        """A trainer in the background, asked to stop when the block is left unless it has ended by itself."""
        stop = asyncio.Event()
        task = asyncio.create_task(self.train(stop, **config))
        try:
            yield task, stop
            if not task.done():
                stop.set()
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def published(self) -> int:
        manifest = await self.crew.worker.latest_manifest()
        return -1 if manifest is None else manifest.policy_version

    async def until_published(self, version: int) -> None:
        assert await self.crew.worker.latest_manifest(version - 1, wait_s=20) is not None

    def saved_version(self) -> int:
        checkpoint = Checkpoints(self.folder / "checkpoints", keep=9).load_newest()
        return -1 if checkpoint is None else checkpoint.progress.policy_version

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in read_metrics(self.folder / "metrics.jsonl") if row["kind"] == kind]


@asynccontextmanager
async def a_place(folder: Path, pool: PoolSpec = POOL) -> AsyncIterator[Place]:
    async with coordinator(folder, pool) as url, crew(url, pool) as workers:
        yield Place(folder, url, workers)


def trained_slots(history: list[Publication]) -> list[int]:
    return [item.slot for publication in history if publication.batch for item in publication.batch.items]


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([value.flatten() for value in policy.masters_state().values()])


# -- a run ------------------------------------------------------------------------------------------------------------


async def test_a_run_makes_its_versions_tells_everyone_and_leaves_a_model(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=3)
        await until(lambda: place.crew.worker.is_finished)
    history = publications(tmp_path)
    check_history(history)
    assert len(history) == 4
    assert len(trained_slots(history)) == 6
    model = load_folder(tmp_path / "model")
    assert {value.dtype for value in model.state.values()} == {torch.bfloat16}
    checkpoint = Checkpoints(tmp_path / "checkpoints", keep=2).load_newest()
    assert checkpoint is not None
    assert checkpoint.publication == history[-1]
    assert all(torch.equal(checkpoint.masters[name].to(torch.bfloat16), value) for name, value in model.state.items())
    assert [row["version"] for row in place.rows("train")] == [1, 2, 3]
    assert [row["version"] for row in place.rows("eval")] == [0, 3]
    assert all(row["staleness/max"] <= POOL.max_staleness for row in place.rows("train"))
    (progress,) = place.rows("progress")
    assert (progress["version"], progress["optimizer_steps"]) == (3, 3)
    assert progress["tokens_trained"] == checkpoint.progress.tokens_trained > 0


async def test_a_finished_run_that_is_started_again_says_so_again(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=1)
    async with a_place(tmp_path) as place:
        assert not place.crew.worker.is_finished
        await place.train(max_versions=1)
        await place.crew.worker.status()
        assert place.crew.worker.is_finished
    assert len(publications(tmp_path)) == 2


async def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=1)
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=3)
    history = publications(tmp_path)
    check_history(history)
    assert len(history) == 4


async def test_a_batch_without_signal_makes_a_version_with_the_same_weights(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place:
        place.crew.rewards = lambda group, sample: 1.0
        async with working(place.crew):
            await place.train(max_versions=2)
    history = publications(tmp_path)
    assert len({publication.manifest.policy_digest for publication in history}) == 1
    assert [publication.manifest.optimizer_step for publication in history] == [0, 0, 0]
    assert history[-1].batch is not None
    assert [item.groups_trained for item in history[-1].batch.items] == [(), ()]
    assert place.rows("train")[-1]["drops"] == {"no_signal": 8}


async def test_synchronous_mode_trains_on_nothing_but_the_current_version(tmp_path: Path) -> None:
    pool = pool_spec(max_staleness=0, max_outstanding_groups=4)
    async with a_place(tmp_path, pool) as place, working(place.crew):
        await place.train(max_versions=4)
    assert [row["staleness/max"] for row in place.rows("train")] == [0, 0, 0, 0]
    assert trained_slots(publications(tmp_path)) == list(range(8))


async def test_the_warm_start_comes_before_the_first_version(tmp_path: Path) -> None:
    warm = {"max_steps": 6, "eval_every_steps": 3, "batch_size": 8, "target_accuracy": 1.0}
    async with a_place(tmp_path) as place, place.training(warm_start=warm):
        await place.until_published(0)
    assert [row["step"] for row in place.rows("warm_start")] == [3, 6]
    checkpoint = Checkpoints(tmp_path / "checkpoints", keep=2).load_newest()
    assert checkpoint is not None
    assert checkpoint.optimizer == {}
    assert any(
        not torch.equal(value, tiny_policy().masters_state()[name]) for name, value in checkpoint.masters.items()
    )


# -- stopped ----------------------------------------------------------------------------------------------------------


async def test_a_stop_while_the_coordinator_is_away_ends_at_once(tmp_path: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)
    place = Place(tmp_path, "http://127.0.0.1:9", None)  # type: ignore[arg-type]
    await place.train(stop, unreachable_s=60.0)
    assert not (tmp_path / "checkpoints").exists()


async def test_a_coordinator_that_stays_away_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path, "http://127.0.0.1:9", None)  # type: ignore[arg-type]
    with pytest.raises(Transient, match="gave up after"):
        await place.train(unreachable_s=0.2)


async def test_a_stop_during_the_warm_start_publishes_nothing_and_the_next_start_begins_anew(tmp_path: Path) -> None:
    warm = {"max_steps": 100_000, "eval_every_steps": 1, "batch_size": 2, "target_accuracy": 1.0}
    async with a_place(tmp_path) as place:
        async with place.training(warm_start=warm):
            await until(lambda: (tmp_path / "metrics.jsonl").exists())
        assert await place.published() == -1
        assert place.saved_version() == -1
        async with working(place.crew):
            await place.train(max_versions=1, warm_start={**warm, "max_steps": 1})
    check_history(publications(tmp_path))


async def test_a_stop_while_waiting_for_rollouts_saves_what_is_published(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place:
        async with place.training(max_versions=9, checkpoint={"every_versions": 100}):
            await place.until_published(0)
            await place.crew.deliver(2)
            await place.until_published(1)
            await place.crew.deliver(1)
        assert place.saved_version() == await place.published() == 1
        assert load_folder(tmp_path / "model").config == description().config
        assert place.rows("progress")[-1]["version"] == 1
        await place.crew.deliver(1)
        async with working(place.crew):
            await place.train(max_versions=3)
    history = publications(tmp_path)
    check_history(history)
    assert trained_slots(history)[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("phase", ["learn", "prepare", "save", "evaluate", "send"])
async def test_a_stop_in_the_middle_of_a_version_makes_it_durable_and_the_next_start_announces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    where: dict[str, tuple[Any, str]] = {
        "learn": (Learner, "learn"),
        "prepare": (Publisher, "prepare"),
        "save": (Checkpoints, "save"),
        "evaluate": (Canary, "evaluate"),
        "send": (Publisher, "send"),
    }
    owner, name = where[phase]
    async with a_place(tmp_path) as place:
        config = {"max_versions": 9, "checkpoint": {"every_versions": 1 if phase == "save" else 100}}
        config["evaluation"] = {"num_tasks": 4, "every_versions": 2 if phase == "evaluate" else 1000}
        async with place.training(**config) as (task, stop):
            await place.until_published(0)
            await place.crew.deliver(2)
            await place.until_published(1)
            loop, original = asyncio.get_running_loop(), getattr(owner, name)

            def stopping(*args: Any, **rest: Any) -> Any:
                loop.call_soon_threadsafe(stop.set)
                return original(*args, **rest)

            monkeypatch.setattr(owner, name, stopping)
            await place.crew.deliver(2)
            await task
        monkeypatch.undo()
        assert (await place.published(), place.saved_version()) == (1, 2)
        assert (tmp_path / "model" / "config.json").exists()
        assert len(place.rows("progress")) == 1
        assert [row["version"] for row in place.rows("train")] == [1, 2]
        async with working(place.crew):
            await place.train(**{**config, "max_versions": 3})
    history = publications(tmp_path)
    check_history(history)
    assert len(history) == 4
    assert trained_slots(history)[:4] == [0, 1, 2, 3]
    assert [publication.manifest.optimizer_step for publication in history] == [0, 1, 2, 3]


async def test_after_a_stop_no_further_batch_is_taken_however_many_are_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version in hand is durable but not announced: a second step would take its number."""

    async def slow(self: Inbox) -> None:
        """The feed has not noticed yet."""

    async with a_place(tmp_path) as place:
        async with place.training(max_versions=9) as (task, stop):
            await place.until_published(0)
            loop, learn = asyncio.get_running_loop(), Learner.learn

            def stopping(self: Learner, batch: Any) -> Any:
                loop.call_soon_threadsafe(stop.set)
                time.sleep(0.3)  # both batches are ready by then
                return learn(self, batch)

            monkeypatch.setattr(Inbox, "stop", slow)
            monkeypatch.setattr(Learner, "learn", stopping)
            await place.crew.deliver(4)
            await task
        assert (await place.published(), place.saved_version()) == (0, 1)
        assert [row["version"] for row in place.rows("train")] == [1]


# -- killed -----------------------------------------------------------------------------------------------------------


def kill_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int, *, after: bool) -> None:
    """The call with this number (0-based) does not come back; it takes effect first, or not."""
    original, calls = getattr(owner, name), 0

    def fatal() -> bool:
        nonlocal calls
        calls += 1
        return calls == number + 1

    def dying(*args: Any, **rest: Any) -> Any:
        is_fatal = fatal()
        if is_fatal and not after:
            raise Killed
        result = original(*args, **rest)
        if is_fatal:
            raise Killed
        return result

    async def dying_async(*args: Any, **rest: Any) -> Any:
        is_fatal = fatal()
        if is_fatal and not after:
            raise Killed
        await original(*args, **rest)
        if is_fatal:
            raise Killed

    monkeypatch.setattr(owner, name, dying_async if asyncio.iscoroutinefunction(original) else dying)


@pytest.mark.parametrize("every_versions", [1, 3])
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (Learner, "learn", True),
        (Checkpoints, "save", False),
        (Checkpoints, "save", True),
        (Publisher, "send", False),
        (Publisher, "send", True),
    ],
)
async def test_killed_anywhere_no_slot_is_trained_twice_and_versions_stay_consecutive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool, every_versions: int
) -> None:
    """Twice in one run, at different versions; the slots trained since the checkpoint are unseen in its ledger."""
    config = {"max_versions": 7, "checkpoint": {"every_versions": every_versions, "keep": 1}}
    async with a_place(tmp_path) as place, working(place.crew):
        for _ in range(2):
            with monkeypatch.context() as patch:
                kill_at(patch, owner, name, 1, after=after)
                with pytest.raises(Killed):
                    await place.train(**config)
        await place.train(**config)
    history = publications(tmp_path)
    check_history(history)
    assert len(history) == 8
    slots = trained_slots(history)
    dropped = {drop.slot for publication in history if publication.batch for drop in publication.batch.drops}
    assert len(slots) == 14
    assert not dropped & set(slots)


async def test_killed_after_many_unsaved_versions_the_trainer_goes_on_behind_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights step back to the checkpoint, versions do not; what was trained meanwhile is not trained again."""
    config = {"max_versions": 9, "checkpoint": {"every_versions": 100}}
    async with a_place(tmp_path) as place:
        kill_at(monkeypatch, Learner, "learn", 4, after=False)
        async with place.training(**config) as (task, _):
            for version in range(5):
                await place.until_published(version)
                await place.crew.deliver(2)
            with pytest.raises(Killed):
                await task
        monkeypatch.undo()
        assert (await place.published(), place.saved_version()) == (4, 0)
        async with place.training(**config):
            await place.until_published(5)
    history = publications(tmp_path)
    check_history(history)
    assert trained_slots(history) == list(range(10))
    assert [publication.manifest.optimizer_step for publication in history] == [0, 1, 2, 3, 4, 1]


async def test_nobody_waits_for_slots_that_were_trained_since_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool with places for one batch never fills a window of eight: waiting for a trained slot would be for ever."""
    pool = pool_spec(max_staleness=0, max_outstanding_groups=4)
    config = {"max_versions": 4, "window_slots": 8, "checkpoint": {"every_versions": 100}}
    async with a_place(tmp_path, pool) as place, working(place.crew):
        with monkeypatch.context() as patch:
            kill_at(patch, Learner, "learn", 2, after=False)
            with pytest.raises(Killed):
                await place.train(**config)
        await place.train(**config)
    history = publications(tmp_path)
    check_history(history)
    assert len(history) == 5


async def test_a_run_that_is_killed_at_every_version_makes_the_same_policies_as_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C1, for a pool in step: the same slots in the same order, bit-identical weights."""
    monkeypatch.setattr("farflung.coordinator.service.secrets.token_bytes", lambda size: b"s" * size)

    async def unbroken(place: Place) -> None:
        async with place.training(max_versions=9):
            for version in range(3):
                await place.until_published(version)
                await place.crew.deliver(2)
            await place.until_published(3)

    async def broken(place: Place) -> None:
        for version in range(3):
            with monkeypatch.context() as patch:
                kill_at(patch, Publisher, "send", 1, after=False)
                async with place.training(max_versions=9) as (task, _):
                    await place.until_published(version)
                    await place.crew.deliver(2)
                    with pytest.raises(Killed):
                        await task
        async with place.training(max_versions=9):
            await place.until_published(3)

    policies = []
    for run in (unbroken, broken):
        folder = tmp_path / run.__name__
        folder.mkdir()
        async with a_place(folder) as place:
            await run(place)
        check_history(publications(folder))
        policies.append([publication.manifest.policy_digest for publication in publications(folder)])
    assert policies[0] == policies[1]
    assert len(set(policies[0])) == 4


# -- refused steps ----------------------------------------------------------------------------------------------------


def spoil_steps(monkeypatch: pytest.MonkeyPatch, is_spoilt: Callable[[int], bool], *, spoil_weights: bool) -> None:
    """Versions (0-based) whose optimizer step comes out not finite."""
    original, number = learner_module.train_version, -1

    def spoiling(policy: Policy, *args: Any, **rest: Any) -> StepResult:
        nonlocal number
        number += 1
        if not is_spoilt(number):
            result: StepResult = original(policy, *args, **rest)
            return result
        if spoil_weights:
            with torch.no_grad():
                for parameter in policy.masters.parameters():
                    parameter.fill_(torch.nan)
            policy.round_masters()
        return StepResult(
            is_applied=False, grad_norm=None, num_loss_tokens=1, metrics={}, num_steps=1 if spoil_weights else 0
        )

    monkeypatch.setattr(learner_module, "train_version", spoiling)


async def test_a_step_that_is_not_finite_is_not_published_and_its_batch_is_dropped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_steps(monkeypatch, lambda step: step == 1, spoil_weights=True)
    async with a_place(tmp_path) as place, place.training(optimizer={"lr": 0.0}, max_versions=2):
        await place.until_published(0)
        await place.crew.deliver(2)
        await place.until_published(1)
        refused = await place.crew.deliver(2)
        await until(lambda: bool(place.rows("rollback")))
        assert await place.published() == 1
        good = await place.crew.deliver(2)
        await place.until_published(2)
    history = publications(tmp_path)
    check_history(history)
    batch = history[2].batch
    assert batch is not None
    assert [item.slot for item in batch.items] == good
    assert [(drop.slot, drop.reason) for drop in batch.drops] == [(slot, "non_finite") for slot in refused]
    assert [row["reason"] for row in place.rows("rollback")] == ["non_finite"]
    assert place.rows("train")[-1]["drops"] == {"non_finite": 4}
    assert place.rows("progress")[-1]["optimizer_steps"] == 2
    # Learning rate 0: the weights that were spoilt are those of the version before again.
    assert len({publication.manifest.policy_digest for publication in history}) == 1


async def test_weights_that_were_not_spoilt_are_not_taken_back_to_an_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_steps(monkeypatch, lambda step: step == 2, spoil_weights=False)
    loads: list[int] = []
    original = Checkpoints.load_newest

    def counted(self: Checkpoints) -> Any:
        loads.append(1)
        return original(self)

    monkeypatch.setattr(Checkpoints, "load_newest", counted)
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=4, checkpoint={"every_versions": 100})
    assert len(loads) == 1  # at the start
    check_history(publications(tmp_path))


async def test_steps_that_are_never_finite_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_steps(monkeypatch, lambda step: step >= 1, spoil_weights=True)
    async with a_place(tmp_path) as place, working(place.crew):
        with pytest.raises(OurFault, match=r"6 batches in a row were refused \(non_finite\): lower trainer.opt"):
            await place.train(max_versions=9)
        monkeypatch.undo()
        newest = await place.published()
        await place.train(max_versions=newest + 1)
    history = publications(tmp_path)
    check_history(history)
    # What was published between is the last good policy again, only to report what was dropped.
    assert len({publication.manifest.policy_digest for publication in history[1 : newest + 1]}) == 1
    assert all(publication.batch and not publication.batch.items for publication in history[2 : newest + 1])
    assert history[-1].batch is not None
    assert history[-1].batch.items


async def test_a_refused_step_does_not_starve_a_pool_that_has_places_for_one_batch_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused slots keep their places until a batch record drops them, so one is written at once."""
    spoil_steps(monkeypatch, lambda step: step == 1, spoil_weights=False)
    pool = pool_spec(max_staleness=0, max_outstanding_groups=4)
    async with a_place(tmp_path, pool) as place, working(place.crew):
        await place.train(max_versions=4)
    history = publications(tmp_path)
    check_history(history)
    assert history[2].batch is not None
    assert history[2].batch.items == ()
    assert [(drop.slot, drop.reason) for drop in history[2].batch.drops] == [(2, "non_finite"), (3, "non_finite")]
    assert history[2].manifest.policy_digest == history[1].manifest.policy_digest
    assert trained_slots(history) == [0, 1, 4, 5, 6, 7]
    assert [row["version"] for row in place.rows("train")] == [1, 2, 3, 4]


async def test_now_and_then_a_refused_step_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_steps(monkeypatch, lambda step: step % 2 == 0, spoil_weights=True)
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=7)
    assert len(place.rows("rollback")) >= 7
    check_history(publications(tmp_path))


async def test_a_collapse_is_not_published_and_learning_goes_on_from_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accuracies by evaluation: version 0, 1 (best), 2, then a collapse, then well again."""
    accuracies = iter([0.5, 0.8, 0.7, 0.1, 0.75])
    evaluate, learn = Canary.evaluate, Learner.learn
    before: list[torch.Tensor] = []

    def scripted(self: Canary, policy: Policy, version: int) -> Evaluation:
        honest = evaluate(self, policy, version)
        return Evaluation(
            accuracy=next(accuracies),
            mean_reward=honest.mean_reward,
            mean_length_tokens=honest.mean_length_tokens,
            num_tasks=1000,  # so that a fall is no chance
            num_ungraded=0,
            rollouts=honest.rollouts,
        )

    def watched(self: Learner, batch: Any) -> Any:
        before.append(weights(self.policy))
        return learn(self, batch)

    monkeypatch.setattr(Canary, "evaluate", scripted)
    monkeypatch.setattr(Learner, "learn", watched)
    evaluation = {"num_tasks": 4, "every_versions": 1, "max_accuracy_drop": 0.3}
    async with (
        a_place(tmp_path) as place,
        place.training(max_versions=3, evaluation=evaluation, checkpoint={"keep": 1, "every_versions": 100}) as (
            task,
            _,
        ),
    ):
        slots = []
        for version in range(3):
            await place.until_published(version)
            slots += await place.crew.deliver(2)
        await until(lambda: bool(place.rows("rollback")))
        assert await place.published() == 2
        good = await place.crew.deliver(2)
        await task
    history = publications(tmp_path)
    check_history(history)
    batch = history[3].batch
    assert batch is not None
    assert [item.slot for item in batch.items] == good
    assert [(drop.slot, drop.reason) for drop in batch.drops] == [(slot, "canary") for slot in slots[4:]]
    assert torch.equal(before[3], before[1]), "learning went on from the weights of version 1"
    assert not torch.equal(before[2], before[1])
    assert [publication.manifest.optimizer_step for publication in history] == [0, 1, 2, 2]
    (progress,) = place.rows("progress")
    assert (progress["initial_accuracy"], progress["best_accuracy"]) == (0.5, 0.8)
    tokens = [row["num_tokens"] for row in place.rows("train")]
    assert progress["tokens_trained"] == sum(tokens)  # the refused batch does not count
    assert progress["drops"] == {"canary": 4}


# -- faults -----------------------------------------------------------------------------------------------------------


async def test_the_coordinator_may_restart_at_any_moment(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place:
        port = int(place.url.rpartition(":")[2])
        training = asyncio.create_task(place.train(max_versions=4))
        await place.until_published(0)
        await place.crew.deliver(3)
        await place.until_published(1)
    async with coordinator(tmp_path, POOL, port=port) as url, crew(url, POOL) as workers, working(workers):
        await training
    check_history(publications(tmp_path))
    assert len(publications(tmp_path)) == 5


async def test_a_feed_that_fails_ends_the_run_with_its_error_and_it_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case H4: an error in a background task never hangs the run."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug")

    async with a_place(tmp_path) as place:
        with monkeypatch.context() as patch:
            patch.setattr("farflung.trainer.feed.graded_groups", broken)
            async with place.training(max_versions=9) as (task, _):
                await place.until_published(0)
                await place.crew.deliver(1)
                with pytest.raises(RuntimeError, match="a bug"):
                    await task
        async with working(place.crew):
            await place.train(max_versions=2)
    history = publications(tmp_path)
    check_history(history)
    assert trained_slots(history)[0] == 0


async def test_a_full_disk_ends_the_run_and_it_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OurFault("cannot save checkpoint: No space left on device")

    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=1)
    async with a_place(tmp_path) as place, working(place.crew):
        monkeypatch.setattr(Checkpoints, "save", full)
        with pytest.raises(OurFault, match="No space left"):
            await place.train(max_versions=3)
        assert await place.published() == 1
        monkeypatch.undo()
        await place.train(max_versions=3)
    check_history(publications(tmp_path))


async def test_a_run_without_its_checkpoints_is_refused(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=1)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    async with a_place(tmp_path) as place:
        with pytest.raises(UserError, match="has published version 1 but the trainer has no checkpoint"):
            await place.train(max_versions=2)


# -- figures that mean something --------------------------------------------------------------------------------------


async def test_the_evaluation_of_a_refused_step_is_no_point_of_the_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([0.8, 0.1, 0.75, 0.7, 0.7])
    evaluate = Canary.evaluate

    def scripted(self: Canary, policy: Policy, version: int) -> Evaluation:
        return replace(evaluate(self, policy, version), accuracy=next(accuracies), num_tasks=1000)

    monkeypatch.setattr(Canary, "evaluate", scripted)
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=2, evaluation={"num_tasks": 4, "every_versions": 1})
    (rollback,) = place.rows("rollback")
    assert (rollback["version"], rollback["reason"], rollback["accuracy"]) == (0, "canary", 0.1)
    assert [(row["version"], row["accuracy"]) for row in place.rows("eval")] == [(0, 0.8), (1, 0.75), (2, 0.7)]


async def test_h9_every_point_of_evaluation_is_kept_through_kills_and_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_steps(monkeypatch, lambda step: step in (2, 5), spoil_weights=True)
    evaluation = {"num_tasks": 4, "every_versions": 2}
    async with a_place(tmp_path) as place, working(place.crew):
        for mark, version in ((Mark.EVALUATING, 2), (Mark.RELEASED, 4), (Mark.SAVED, 6)):
            with pytest.raises(Killed):
                await place.train(max_versions=7, evaluation=evaluation, marks=dies_at(mark, version))
        await place.train(max_versions=7, evaluation=evaluation)
    points = [row["version"] for row in place.rows("eval")]
    assert sorted(set(points)) == [0, 2, 4, 6, 7]
    assert len(place.rows("rollback")) >= 2


async def test_a_run_that_is_never_graded_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "MAX_UNGRADED_IN_A_ROW", 3)
    async with a_place(tmp_path) as place:
        place.crew.rewards = lambda _group, _sample: None  # type: ignore[assignment, return-value]
        async with working(place.crew):
            with pytest.raises(UserError, match=r"not one rollout of the last 3 batches has a reward: .* sort-digits"):
                await place.train(max_versions=9)
    assert count_of(caplog, "has not a single reward") == 1


async def test_a_short_run_that_is_never_graded_does_not_end_as_if_all_were_well(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place:
        place.crew.rewards = lambda _group, _sample: None  # type: ignore[assignment, return-value]
        async with working(place.crew):
            with pytest.raises(UserError, match=r"not one rollout of the last 2 batches has a reward"):
                await place.train(max_versions=2)
    assert (tmp_path / "model" / "config.json").exists()


async def test_what_an_environment_raises_in_the_trainer_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom(*_: Any) -> Any:
        raise KeyError("boom")

    monkeypatch.setattr("farflung.envs.sort_digits.SortDigits.grade", boom)
    async with a_place(tmp_path) as place:
        with pytest.raises(OurFault, match="environment sort-digits failed when grading task heldout/0: KeyError"):
            await place.train(max_versions=2)


async def test_an_accepted_change_is_told_in_the_metrics(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place, working(place.crew):
        await place.train(max_versions=1)
        with pytest.raises(UserError, match=r"trainer\.optimizer\.lr: 0\.001 -> 0\.5"):
            await place.train(max_versions=2, optimizer={"lr": 0.5})
        await place.train(max_versions=2, optimizer={"lr": 0.5}, accept_changes=True)
    (row,) = place.rows("changes")
    assert (row["version"], row["changes"]) == (1, "trainer.optimizer.lr: 0.001 -> 0.5")


def dies_at(mark: Mark, version: int) -> Marks:
    """As `kill_at`, for a trainer in the test's own process."""

    def die(passed: Mark, at_version: int) -> None:
        if (passed, at_version) == (mark, version):
            raise Killed

    return die


def count_of(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)
