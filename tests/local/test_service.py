"""Whole local runs with real sampler processes: learn, stop, die, go on, repeat themselves bit by bit."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from farflung.broadcast.fetched import FetchedPolicy
from farflung.errors import UserError
from farflung.local import process, service
from farflung.local.crew import Crew, num_versions
from farflung.local.leases import write_local_lease
from farflung.local.slot_book import Turn
from farflung.local.tally import StatusFile
from farflung.model.adapter_files import load_adapter_folder
from farflung.model.folder import WEIGHTS_FILE, load_folder
from farflung.model.lora import merge
from farflung.model.weights import publishable_state, to_safetensors_bytes
from farflung.rl.types import RolloutGroup
from farflung.slots.deterministic import secret_of
from farflung.telemetry.metrics import read_metrics
from farflung.trainer.chain import Chain
from farflung.trainer.checkpoint import Checkpoint, Checkpoints
from farflung.trainer.inbox import Inbox
from farflung.trainer.marks import Mark, Marks, pass_by
from farflung.wire.manifest import Manifest
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.worker.config import WorkerConfig
from farflung.worker.sampler import Sampler
from forked_sampler import ForkedSampler, start_forked
from tiny_pool import NUM_TASKS, SEED, description, environment, pool_spec, tiny_policy, trainer_config

POOL = pool_spec()
WARM: dict[str, Any] = {"warm_start": {"max_steps": 60, "target_accuracy": 0.25, "lr": 2e-2, "batch_size": 32}}
"""Random weights are never right, and then there is nothing to reinforce."""


class Killed(Exception):
    """The trainer is gone: nothing after this point happens."""


@pytest.fixture(autouse=True)
def samplers(monkeypatch: pytest.MonkeyPatch) -> list[ForkedSampler]:
    """Every process that was started, oldest first."""
    started: list[ForkedSampler] = []

    def start(fds: tuple[int, int], num_threads: int) -> ForkedSampler:
        started.append(start_forked(fds, num_threads))
        return started[-1]

    monkeypatch.setattr(process, "start_process", start)
    return started


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RolloutGroup, ...]]:
    """The groups of every slot that came into the inbox, in that order."""
    seen: list[tuple[RolloutGroup, ...]] = []
    admit = Inbox.admit

    async def noting(self: Inbox, slot: int, version: int, groups: Any, num_tokens: int, node: str) -> Any:
        seen.append(tuple(groups))
        return await admit(self, slot, version, groups, num_tokens, node)

    monkeypatch.setattr(Inbox, "admit", noting)
    return seen


@pytest.fixture
def any_order_of_sums() -> Iterator[None]:
    """Puts torch back as it was."""
    yield
    torch.use_deterministic_algorithms(False)


async def train(
    folder: Path,
    pool: PoolSpec = POOL,
    *,
    num_samplers: int = 1,
    stop: asyncio.Event | None = None,
    marks: Marks = pass_by,
    **config: Any,
) -> None:
    running = service.run(
        trainer_config(**config),
        WorkerConfig(),
        pool,
        crew=Crew(
            num_samplers,
            num_threads=1,
            num_versions=num_versions(is_deterministic=pool.is_deterministic, max_staleness=pool.max_staleness),
        ),
        run_folder=folder,
        seed=SEED,
        stop=stop or asyncio.Event(),
        marks=marks,
    )
    await asyncio.wait_for(running, 60)


def rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == kind]


def newest(folder: Path) -> Checkpoint:
    checkpoint = Checkpoints(folder / "checkpoints", keep=9).load_newest()
    assert checkpoint is not None
    return checkpoint


def slots_by_version(checkpoint: Checkpoint) -> dict[int, list[int]]:
    return {
        version: list(chain.from_iterable(range(*pair) for pair in ranges))
        for version, ranges in checkpoint.buffer_snapshot["trained"]
    }


def is_gone(sampler: ForkedSampler) -> bool:
    return sampler.wait(0.0) is not None


def version_0() -> Manifest:
    """As the trainer publishes its first weights."""
    chain_of = Chain(POOL, description().policy_files, 1 << 30)
    publication, _ = chain_of.prepare(tiny_policy(), optimizer_step=0, now_ms=0, items=None, drops=())
    return publication.manifest


async def test_a_run_learns_leaves_everything_behind_and_is_made_longer(
    tmp_path: Path, samplers: list[ForkedSampler]
) -> None:
    await train(tmp_path, max_versions=3, **WARM)
    assert [row["version"] for row in rows(tmp_path, "train")] == [1, 2, 3]
    assert [row["version"] for row in rows(tmp_path, "eval")] == [0, 3]
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert all(map(is_gone, samplers))
    status = await StatusFile(tmp_path).status()
    assert (status.policy_version, status.is_finished) == (3, True)
    assert [node.heartbeat.node for node in status.nodes] == ["trainer", "sampler-1"]
    first, tokens_so_far = newest(tmp_path), status.tokens_generated

    await train(tmp_path, max_versions=5, **WARM)
    assert [row["version"] for row in rows(tmp_path, "train")] == [1, 2, 3, 4, 5]
    assert all(row["staleness/max"] <= POOL.max_staleness for row in rows(tmp_path, "train"))
    last = newest(tmp_path)
    assert slots_by_version(last) == {version: [2 * version - 2, 2 * version - 1] for version in range(1, 6)}
    assert last.progress.optimizer_step > 0
    assert any(not torch.equal(last.masters[name], first.masters[name]) for name in last.masters)
    assert (await StatusFile(tmp_path).status()).tokens_generated > tokens_so_far


async def test_a_slot_has_the_tokens_that_a_pools_worker_draws_for_the_same_lease(
    tmp_path: Path, admitted: list[tuple[RolloutGroup, ...]]
) -> None:
    await train(tmp_path, max_versions=1, num_samplers=2)
    manifest = version_0()
    files = {**description().policy_files, WEIGHTS_FILE: to_safetensors_bytes(tiny_policy().published_state())}
    worker = Sampler.from_policy(
        FetchedPolicy(manifest=manifest, files=files),
        POOL,
        max_batch_rows=3,
        num_threads=1,
        should_stop=lambda: False,
    )
    of_version_0 = [groups for groups in admitted if groups[0].policy_version == 0]
    assert len(of_version_0) >= 2
    for groups in of_version_0:
        turn = Turn(slot=groups[0].slot, policy_version=0)
        lease = write_local_lease(POOL, POOL.digest(), secret_of(SEED), turn, manifest.policy_digest)
        drawn = worker.sample(lease, environment(), POOL)
        assert len(drawn) == POOL.groups_per_slot * POOL.group_size
        for ours, theirs in zip(chain.from_iterable(group.rollouts for group in groups), drawn, strict=True):
            assert (ours.task_id, ours.stop_reason, ours.env) == (theirs.task_id, theirs.stop_reason, theirs.env)
            assert np.array_equal(ours.prompt_tokens, theirs.prompt_tokens)
            assert np.array_equal(ours.completion_tokens, theirs.completion_tokens)
            np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-5)
        for group in groups:
            task = environment().task("train", lease.task_indices[group.group])
            texts = [description().tokenizer.decode(each.completion_tokens.tolist()) for each in group.rollouts]
            assert list(group.rewards) == [environment().grade(task, text).reward for text in texts]


@pytest.mark.usefixtures("any_order_of_sums")
async def test_a_deterministic_run_is_the_same_bit_by_bit_however_it_is_killed(
    tmp_path: Path, samplers: list[ForkedSampler]
) -> None:
    pool = pool_spec(deterministic_seed=SEED, max_staleness=2, max_outstanding_groups=12)
    await train(tmp_path / "unbroken", pool, max_versions=6, **WARM)

    def die_after_4(mark: Mark, version: int) -> None:
        if mark is Mark.STEPPING and version == 2:
            os.kill(samplers[-1].pid, signal.SIGKILL)
        if (mark, version) == (Mark.ANNOUNCED, 4):
            raise Killed

    with pytest.raises(Killed):
        await train(tmp_path / "broken", pool, num_samplers=2, max_versions=6, marks=die_after_4, **WARM)
    assert all(map(is_gone, samplers))
    await train(tmp_path / "broken", pool, num_samplers=1, max_versions=6, **WARM)
    unbroken, broken = newest(tmp_path / "unbroken"), newest(tmp_path / "broken")
    assert slots_by_version(broken) == slots_by_version(unbroken)
    assert all(torch.equal(broken.masters[name], unbroken.masters[name]) for name in unbroken.masters)
    assert unbroken.progress.optimizer_step > 2
    assert all(torch.equal(broken.optimizer[name], unbroken.optimizer[name]) for name in unbroken.optimizer)
    assert [row["staleness/max"] for row in rows(tmp_path / "broken", "train")] == [0, 1, 2, 2, 2, 2]


@pytest.mark.usefixtures("any_order_of_sums")
@pytest.mark.parametrize("publish", ["merged", "adapter"])
async def test_a_run_of_an_adapter_is_the_same_bit_by_bit_however_it_is_killed(tmp_path: Path, publish: str) -> None:
    """Sampler processes get the base once and then the adapter; checkpoints hold the adapter alone."""
    pool = pool_spec(deterministic_seed=SEED, max_staleness=2, max_outstanding_groups=12)
    lora: dict[str, Any] = {"lora": {"rank": 4, "publish": publish}, "max_versions": 5}
    lora |= {"objective": {"kl": {"coefficient": 0.01}}, "warm_start": WARM["warm_start"] | {"lr": 5e-2}}
    await train(tmp_path / "unbroken", pool, **lora)

    def die_after_3(mark: Mark, version: int) -> None:
        if (mark, version) == (Mark.ANNOUNCED, 3):
            raise Killed

    with pytest.raises(Killed):
        await train(tmp_path / "broken", pool, marks=die_after_3, **lora)
    await train(tmp_path / "broken", pool, **lora)
    unbroken, broken = newest(tmp_path / "unbroken"), newest(tmp_path / "broken")
    assert all("lora_" in name for name in unbroken.masters)
    assert all(torch.equal(broken.masters[name], unbroken.masters[name]) for name in unbroken.masters)
    assert all(torch.equal(broken.optimizer[name], unbroken.optimizer[name]) for name in unbroken.optimizer)
    assert unbroken.progress.optimizer_step > 0
    assert unbroken.publication.manifest.kind == ("adapter" if publish == "adapter" else "snapshot")
    model = load_folder(tmp_path / "unbroken" / "model")
    adapter = load_adapter_folder(tmp_path / "unbroken" / "adapter", description().config)
    assert adapter.spec.rank == 4
    base = publishable_state(tiny_policy().masters_state())
    together = merge(base, adapter.state, adapter.spec)
    assert all(torch.equal(model.state[name], together[name]) for name in together)

    with pytest.raises(UserError, match=r"trainer.lora.rank: 4 -> 8"):
        await train(tmp_path / "broken", pool, **lora | {"lora": {"rank": 8, "publish": publish}})


async def test_a_killed_trainer_goes_back_to_its_checkpoint_and_trains_on_nothing_twice(tmp_path: Path) -> None:
    """What was learned since is not in the weights, so its slots are sampled and trained on for the first time."""

    def die(mark: Mark, version: int) -> None:
        if (mark, version) == (Mark.ANNOUNCED, 5):
            raise Killed

    often: dict[str, Any] = {"checkpoint": {"every_versions": 3}}
    with pytest.raises(Killed):
        await train(tmp_path, max_versions=7, marks=die, **often)
    assert newest(tmp_path).progress.policy_version == 3
    await train(tmp_path, max_versions=7, **often)
    ledger = newest(tmp_path).buffer_snapshot["counts"]
    counted = newest(tmp_path).progress.component_state[service.TALLY]
    assert counted["slots"] == {"accepted": 14}
    assert counted["tokens"] == ledger["trained_tokens"]
    trained = slots_by_version(newest(tmp_path))
    assert sorted(trained) == [1, 2, 3, 4, 5, 6, 7]
    slots = list(chain.from_iterable(trained.values()))
    assert sorted(slots) == list(range(14))
    (back,) = rows(tmp_path, "stepped_back")
    assert (back["version"], back["from_version"]) == (3, 5)
    assert [row["version"] for row in rows(tmp_path, "train")] == [1, 2, 3, 4, 5, 4, 5, 6, 7]


async def test_a_run_whose_checkpoints_are_gone_does_not_begin_anew_among_its_figures(tmp_path: Path) -> None:
    await train(tmp_path, max_versions=2)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(UserError, match=r"metrics.jsonl tells of version 2, but no checkpoint in .*--run.name NAME"):
        await train(tmp_path, max_versions=4)
    assert [row["version"] for row in rows(tmp_path, "train")] == [1, 2]


async def test_killed_before_its_first_version_a_run_begins_anew(tmp_path: Path) -> None:
    def die(mark: Mark, _version: int) -> None:
        if mark is Mark.BEGUN:
            raise Killed

    with pytest.raises(Killed):
        await train(tmp_path, max_versions=1, marks=die)
    await train(tmp_path, max_versions=1)
    assert [row["version"] for row in rows(tmp_path, "train")] == [1]


@pytest.mark.usefixtures("any_order_of_sums")
async def test_a_deterministic_run_outlives_damage_to_its_newest_checkpoint_and_names_any_other(tmp_path: Path) -> None:
    pool = pool_spec(deterministic_seed=SEED, max_staleness=2, max_outstanding_groups=12)
    once: dict[str, Any] = {"checkpoint": {"keep": 1}, "evaluation": {"every_versions": 100}}
    await train(tmp_path, pool, max_versions=5, **once)
    whole, kept = newest(tmp_path), sorted((tmp_path / "checkpoints").glob("v*"))
    assert [path.name for path in kept[-4:]] == ["v00000002", "v00000003", "v00000004", "v00000005"]
    (kept[-1] / "masters.safetensors").write_bytes(b"damaged")
    await train(tmp_path, pool, max_versions=5, **once)
    again = newest(tmp_path)
    assert again.progress.policy_version == 5
    assert all(torch.equal(again.masters[name], whole.masters[name]) for name in whole.masters)
    (kept[-2] / "masters.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"v00000004 is missing or damaged, .* put it back, or give the run"):
        await train(tmp_path, pool, max_versions=6, **once)


async def test_asked_to_stop_it_leaves_a_checkpoint_of_the_newest_version(tmp_path: Path) -> None:
    stop = asyncio.Event()

    def ask(mark: Mark, version: int) -> None:
        if (mark, version) == (Mark.STEPPED, 2):
            stop.set()

    await train(tmp_path, max_versions=50, stop=stop, marks=ask, checkpoint={"every_versions": 40})
    assert newest(tmp_path).progress.policy_version == 2
    assert not (await StatusFile(tmp_path).status()).is_finished


async def test_a_dead_sampler_is_replaced_and_its_slots_are_sampled_again(
    tmp_path: Path, samplers: list[ForkedSampler]
) -> None:
    def kill_one(mark: Mark, version: int) -> None:
        if mark is Mark.STEPPED and version in (1, 2):
            os.kill(samplers[-1].pid, signal.SIGKILL)

    await train(tmp_path, max_versions=4, marks=kill_one)
    assert len(samplers) >= 2
    assert slots_by_version(newest(tmp_path)) == {
        version: [2 * version - 2, 2 * version - 1] for version in range(1, 5)
    }


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"fault": "die", "where": "grade"}, r"slot \d was tried 3 times and never finished, the last time sampler-1"),
        ({"fault": "hang", "where": "grade"}, r"no answer within 0.2 s: raise pool.lease_s"),
    ],
)
async def test_an_environment_that_kills_or_hangs_ends_the_run_with_a_sentence(
    tmp_path: Path, args: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farflung.trainer.canary.Canary.evaluate", _no_evaluation)
    pool = _rough(args, lease_s=0.2 if args["fault"] == "hang" else 30.0)
    with pytest.raises(UserError, match=sentence):
        await train(tmp_path, pool)


async def test_an_environment_that_cannot_be_graded_ends_the_run_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farflung.trainer.canary.Canary.evaluate", _no_evaluation)
    with pytest.raises(UserError, match=r"grade\(\) of environment rough"):
        await train(tmp_path, _rough({"fault": "raise"}), max_versions=50)
    assert (await StatusFile(tmp_path).status()).grading_faults["rough: RuntimeError"] >= 80


def _rough(args: dict[str, Any], **rules: Any) -> PoolSpec:
    return pool_spec(environment=EnvironmentSpec(name="rough", args=args, num_tasks=NUM_TASKS), **rules)


def _no_evaluation(*_: object) -> Any:
    from farflung.evaluation.heldout import Evaluation

    return Evaluation(accuracy=0.0, mean_reward=0.0, mean_length_tokens=1.0, num_tasks=1, num_ungraded=0, rollouts=())
