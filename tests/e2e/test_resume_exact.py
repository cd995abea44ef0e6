"""Deterministic mode: killed with -9 wherever and however often, a run ends with the bits of an unbroken one.

Compared are the policies of all versions, what made them, every tensor and counter of the last checkpoint, and every
figure that is no time. Both runs are real processes.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from apart_run import KILLED, ApartRun
from audit import History, read_history
from farflung.model.folder import load_folder
from farflung.telemetry.metrics import read_metrics
from farflung.trainer.checkpoint import Checkpoint, Checkpoints
from farflung.trainer.marks import Mark

pytestmark = pytest.mark.timeout(600)

MOMENTS = [
    (Mark.BEGUN, 0),
    (Mark.WAITING, 1),
    (Mark.BATCH_TAKEN, 2),
    (Mark.STEPPING, 3),
    (Mark.EVALUATING, 4),
    (Mark.STEPPED, 5),
    (Mark.RELEASED, 6),
    (Mark.ROLLING_BACK, 8),  # an objective that is now and then not a number has its say here
    (Mark.SAVING, 9),
    (Mark.SAVED, 10),
    (Mark.ANNOUNCED, 11),
    (Mark.ENDING, 12),
]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApartRun]:
    run = ApartRun(tmp_path_factory.mktemp("unbroken") / "run")
    try:
        run.start_others()
        run.start("trainer")
        run.wait_for_trainer(0)
        run.clean_up()
        yield run
    finally:
        run.clean_up()


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[ApartRun]:
    run = ApartRun(tmp_path / "run")
    yield run
    run.clean_up()


def kill_trainer_at(run: ApartRun, moments: Sequence[tuple[Mark, int]]) -> None:
    """One life for each moment, and one that ends well."""
    for mark, version in moments:
        run.start("trainer", kill_at=f"{mark}@{version}")
        run.wait_for_trainer(KILLED)
    run.start("trainer")
    run.wait_for_trainer(0)


def history(run: ApartRun) -> History:
    return read_history(run.run_folder)


def last_checkpoint(run: ApartRun) -> Checkpoint:
    found = Checkpoints(run.run_folder.root / "checkpoints", keep=9).load_newest()
    assert found is not None
    return found


def figures(run: ApartRun) -> dict[tuple[str, Any], dict[str, Any]]:
    """(kind, version or step) -> what is no time, of the last row, as everybody who reads metrics.jsonl does."""
    rows = read_metrics(run.run_folder.metrics)
    return {
        (row["kind"], row.get("version", row.get("step"))): {
            name: value for name, value in row.items() if not name.startswith("time")
        }
        for row in rows
    }


def assert_same_tensors(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def assert_same_run(found: ApartRun, expected: ApartRun) -> None:
    found.clean_up()  # the event log is its coordinator's alone while that runs
    mine, theirs = history(found), history(expected)
    assert [made.manifest.policy_digest for made in mine.publications] == [
        made.manifest.policy_digest for made in theirs.publications
    ]
    assert [made_of(batch) for batch in mine.batches] == [made_of(batch) for batch in theirs.batches]
    last, other = last_checkpoint(found), last_checkpoint(expected)
    assert_same_tensors(last.masters, other.masters)
    assert_same_tensors(last.optimizer, other.optimizer)
    assert msgspec.to_builtins(last.progress) == msgspec.to_builtins(other.progress)
    assert_same_tensors(load_folder(found.run_folder.model).state, load_folder(expected.run_folder.model).state)
    assert figures(found) == figures(expected)


def made_of(batch: Any) -> tuple[Any, ...]:
    items = [(item.slot, item.policy_version, item.groups_trained) for item in batch.items]
    return batch.policy_version, batch.optimizer_step, items, batch.drops


def test_the_unbroken_run_follows_the_plan_of_its_slots(unbroken: ApartRun) -> None:
    """Two slots a version, one version behind, and refused steps among them: otherwise the comparison says little."""
    made = history(unbroken)
    refused = {row["version"] + 1 for row in read_metrics(unbroken.run_folder.metrics) if row["kind"] == "rollback"}
    assert 8 in refused
    for batch in made.batches:
        expected = (
            [] if batch.policy_version in refused else [2 * batch.policy_version - 2, 2 * batch.policy_version - 1]
        )
        assert [item.slot for item in batch.items] == expected
        assert all(item.policy_version == max(0, batch.policy_version - 2) for item in batch.items)
    assert len({found.manifest.policy_digest for found in made.publications}) == 1 + 12 - len(refused)


def test_killed_at_twelve_moments_a_run_ends_with_the_same_bits(unbroken: ApartRun, broken: ApartRun) -> None:
    """C1 and H9 with it: the same slots, prompts and evaluation points as in the unbroken run, in the same order."""
    broken.start_others()
    kill_trainer_at(broken, MOMENTS)
    assert_same_run(broken, unbroken)


def test_whoever_works_and_whoever_is_killed_the_bits_are_the_same(unbroken: ApartRun, broken: ApartRun) -> None:
    """Two workers share the slots; every role is killed once while the others go on."""
    broken.start_others(num_workers=2)
    due = {3: "worker-1", 5: "validator-1", 7: "coordinator", 9: "worker-2"}

    def kill_who_is_due() -> None:
        version = broken.version()
        for moment in [moment for moment in due if version >= moment]:
            name = due.pop(moment)
            broken.kill(name)
            broken.start(name)

    broken.start("trainer")
    broken.wait_for_trainer(0, meanwhile=kill_who_is_due)
    assert due == {}
    broken.clean_up()
    nodes = {slot.submission.node for slot in history(broken).accepted if slot.submission}
    assert nodes == {"worker-1", "worker-2"}
    assert_same_run(broken, unbroken)
