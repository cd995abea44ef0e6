"""With a curriculum, too, a deterministic run killed with -9 ends with the plans and bits of an unbroken one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from apart_run import KILLED, ApartRun
from audit import audit
from farflung.slots.audit import lease_problem
from farflung.slots.deterministic import secret_of
from farflung.trainer.checkpoint import Checkpoint, Checkpoints
from farflung.trainer.marks import Mark

pytestmark = pytest.mark.timeout(600)

MOMENTS = [(Mark.BATCH_TAKEN, 2), (Mark.RELEASED, 3), (Mark.SAVED, 4), (Mark.ANNOUNCED, 5)]
SETTINGS = (
    "--trainer.max_versions=7",
    "--trainer.objective.name=grpo",
    "--trainer.curriculum.enabled=true",
    "--trainer.curriculum.retry_after=1",
    "--trainer.curriculum.every_versions=2",
)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[tuple[ApartRun, ApartRun]]:
    made = ApartRun(tmp_path / "unbroken", settings=SETTINGS), ApartRun(tmp_path / "broken", settings=SETTINGS)
    yield made
    for run in made:
        run.clean_up()


def finish(run: ApartRun) -> None:
    run.start("trainer")
    run.wait_for_trainer(0)
    run.clean_up()


def last_checkpoint(run: ApartRun) -> Checkpoint:
    found = Checkpoints(run.run_folder.root / "checkpoints", keep=9).load_newest()
    assert found is not None
    return found


def steering(run: ApartRun) -> dict[str, Any]:
    """Every plan, every slot's tasks, and what is remembered; the tasks have been audited."""
    history = audit(run.run_folder)
    plans = [publication.curriculum for publication in history.publications]
    leases = [slot.lease for slot in history.slots.values()]
    for lease in leases:
        assert lease_problem(history.rules, secret_of(3), lease, plans[lease.policy_version]) is None
    return {
        "plans": plans,
        "policies": [publication.manifest.policy_digest for publication in history.publications],
        "tasks": {lease.slot: lease.task_indices for lease in leases if lease.slot < 14},
        "state": last_checkpoint(run).progress.component_state,
    }


def test_killed_four_times_it_asks_for_the_same_tasks_and_ends_with_the_same_bits(
    runs: tuple[ApartRun, ApartRun],
) -> None:
    """C1 with a curriculum: what is sampled next is a function of what was trained on."""
    unbroken, broken = runs
    unbroken.start_others()
    finish(unbroken)
    broken.start_others(num_workers=2)
    for mark, version in MOMENTS:
        broken.start("trainer", kill_at=f"{mark}@{version}")
        broken.wait_for_trainer(KILLED)
    finish(broken)
    expected = steering(unbroken)
    assert steering(broken) == expected
    assert len({plan.digest() for plan in expected["plans"]}) == 4
    assert any(part.tasks for part in expected["plans"][-1].strata)
    mine, theirs = last_checkpoint(broken), last_checkpoint(unbroken)
    assert all(torch.equal(mine.masters[name], tensor) for name, tensor in theirs.masters.items())
