"""Tasks of a folder: passed by every check, split for ever, and refused in words where the folder does not fit."""

from pathlib import Path

import pytest

from farflung.data.task_row import read_manifest
from farflung.envs.checks.fingerprint import HASH_SEEDS, Subject, fingerprints
from farflung.envs.checks.report import Outcome
from farflung.envs.checks.run import Options, check_environment
from farflung.envs.dataset import Dataset
from farflung.envs.registry import load_environment
from farflung.errors import UserError
from task_folder import task_folder


def ids(environment: Dataset, split: str) -> list[str]:
    count = environment.num_tasks if split == "train" else environment.num_heldout_tasks
    return [environment.task("train" if split == "train" else "heldout", index).task_id for index in range(count)]


def test_it_passes_every_check_of_env_test(tmp_path: Path) -> None:
    subject = Subject(name="dataset", args={"path": str(task_folder(tmp_path / "tasks"))})
    one, other = (fingerprints([subject], hash_seed, 100.0)[0] for hash_seed in HASH_SEEDS)
    environment = load_environment(subject.name, subject.seed, subject.args)
    checks = list(check_environment(environment, (one, other), Options(num_tasks=6)))
    assert [check for check in checks if check.outcome is Outcome.FAILED] == []
    assert len([check for check in checks if check.outcome is Outcome.PASSED]) >= 5


def test_a_row_stays_held_out_when_others_are_added(tmp_path: Path) -> None:
    few = Dataset(0, {"path": str(task_folder(tmp_path / "few", 60))})
    many = Dataset(5, {"path": str(task_folder(tmp_path / "many", 600))})
    assert not set(ids(few, "train")) & set(ids(few, "heldout"))
    assert len(ids(few, "train")) + len(ids(few, "heldout")) == 60
    assert len(ids(many, "heldout")) == 60
    everything = Dataset(0, {"path": str(tmp_path / "few"), "heldout": False})
    assert (everything.num_tasks, everything.num_heldout_tasks) == (60, 60)


def test_the_digest_in_the_rules_holds_every_machine_to_the_same_rows(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "tasks")
    sha256 = read_manifest(folder).sha256
    assert Dataset(0, {"path": str(folder), "sha256": sha256}).num_tasks == 54
    with pytest.raises(UserError, match=f"has sha256 {sha256}, and {'0' * 64} is asked for: fetch that one"):
        Dataset(0, {"path": str(folder), "sha256": "0" * 64})


@pytest.mark.parametrize(
    ("args", "message"), [({}, "argument path of environment dataset is empty"), ({"sha256": "xyz"}, "sha256")]
)
def test_arguments_that_name_no_data_set_are_refused(args: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_environment("dataset", 0, dict(args))
