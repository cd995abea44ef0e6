"""A curriculum in a local run: the samplers' tasks follow the plans, also after the trainer was killed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from farflung.local import process, service
from farflung.local.crew import Crew, num_versions
from farflung.rl.types import RolloutGroup
from farflung.slots.curriculum import tasks_of_slot
from farflung.slots.deterministic import secret_of
from farflung.telemetry.metrics import read_metrics
from farflung.trainer.checkpoint import Checkpoint, Checkpoints
from farflung.trainer.inbox import Inbox
from farflung.trainer.marks import Mark, Marks, pass_by
from farflung.worker.config import WorkerConfig
from forked_sampler import start_forked
from tiny_pool import SEED, pool_spec, trainer_config

POOL = pool_spec(deterministic_seed=SEED)
CONFIG: dict[str, Any] = {
    "max_versions": 5,
    "curriculum": {"enabled": True, "retry_after": 1, "every_versions": 2},
    "warm_start": {"max_steps": 60, "target_accuracy": 0.25, "lr": 2e-2, "batch_size": 32},
}


class Killed(Exception):
    """The trainer is gone: nothing after this point happens."""


@pytest.fixture(autouse=True)
def forked_samplers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(process, "start_process", start_forked)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[RolloutGroup]:
    """Every group that came into the inbox."""
    seen: list[RolloutGroup] = []
    admit = Inbox.admit

    async def noting(self: Inbox, slot: int, version: int, groups: Any, num_tokens: int, node: str) -> Any:
        seen.extend(groups)
        return await admit(self, slot, version, groups, num_tokens, node)

    monkeypatch.setattr(Inbox, "admit", noting)
    return seen


async def train(folder: Path, marks: Marks = pass_by) -> None:
    running = service.run(
        trainer_config(**CONFIG),
        WorkerConfig(),
        POOL,
        crew=Crew(1, num_threads=1, num_versions=num_versions(is_deterministic=True, max_staleness=1)),
        run_folder=folder,
        seed=SEED,
        stop=asyncio.Event(),
        marks=marks,
    )
    await asyncio.wait_for(running, 60)


def checkpoint(folder: Path, version: int) -> Checkpoint:
    found = Checkpoints(folder / "checkpoints", keep=9).load(version)
    assert found is not None
    return found


async def test_samplers_work_on_what_the_plans_ask_for_and_a_killed_trainer_goes_on_with_them(
    tmp_path: Path, admitted: list[RolloutGroup]
) -> None:
    """C1: the same plans, tasks and weights as in the unbroken run."""
    await train(tmp_path / "unbroken")
    newest = checkpoint(tmp_path / "unbroken", 5)
    plan = newest.publication.curriculum
    assert plan is not None
    assert plan.digest() == newest.publication.manifest.curriculum_digest
    rows = [row for row in read_metrics(tmp_path / "unbroken" / "metrics.jsonl") if row["kind"] == "train"]
    assert rows[-1]["curriculum/tracked_tasks"] > 4
    plans = {5: plan, 4: checkpoint(tmp_path / "unbroken", 4).publication.curriculum}
    for group in admitted:
        expected = tasks_of_slot(
            secret_of(SEED), group.slot, POOL.groups_per_slot, POOL.environment, plans.get(group.policy_version)
        )
        if group.policy_version in plans:
            assert group.task_index == expected[group.group]
        assert group.task_id == f"train/{group.task_index}"

    def die(mark: Mark, version: int) -> None:
        if (mark, version) == (Mark.RELEASED, 3):
            raise Killed

    with pytest.raises(Killed):
        await train(tmp_path / "broken", die)
    await train(tmp_path / "broken")
    again = checkpoint(tmp_path / "broken", 5)
    assert again.publication.curriculum == plan
    assert again.progress.component_state["curriculum"] == newest.progress.component_state["curriculum"]
    assert all(torch.equal(again.masters[name], tensor) for name, tensor in newest.masters.items())
