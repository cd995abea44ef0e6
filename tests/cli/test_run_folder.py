"""One supervisor at a time, and never another run in the same folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from farflung.cli.config import FREE_TO_CHANGE, RunConfig
from farflung.cli.run_folder import FolderLock, RunFolder, differences, refuse_differences
from farflung.config.load import load
from farflung.errors import UserError


def config(*overrides: str) -> RunConfig:
    return load(RunConfig, None, overrides).config


def test_a_second_process_is_refused_with_the_first_ones_id(tmp_path: Path) -> None:
    folder = RunFolder(root=tmp_path / "demo")
    code = (
        "import sys, time; from pathlib import Path; from farflung.cli.run_folder import FolderLock, RunFolder\n"
        "with FolderLock(RunFolder(root=Path(sys.argv[1]))): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder.root)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=rf"is in use by process {holder.pid}: stop that one first"),
            FolderLock(folder),
        ):
            pass
        holder.kill()
    with FolderLock(folder):
        pass  # the system let go of it


def test_the_same_settings_have_no_differences() -> None:
    assert differences(config(), config(), free=FREE_TO_CHANGE) == []


def test_what_is_learned_must_not_change() -> None:
    lines = differences(
        config("--run.seed=1"),
        config("--trainer.optimizer.lr=0.5", "--environment.args.num_digits=4"),
        free=FREE_TO_CHANGE,
    )
    assert lines == [
        "environment.args: {} there, absent now",
        "environment.args.num_digits: absent there, 4 now",
        "run.seed: 1 there, 0 now",
        "trainer.optimizer.lr: 1e-06 there, 0.5 now",
    ]


def test_how_fast_and_how_long_may_change() -> None:
    changes = (
        "--supervisor.num_workers=5", "--trainer.max_versions=9", "--worker.speed=0.5", "--coordinator.port=0",
        "--run.dir=elsewhere", "--run.name=other",
    )  # fmt: skip
    assert differences(config(), config(*changes), free=FREE_TO_CHANGE) == []


def test_a_refusal_shows_the_differences_and_the_way_out(tmp_path: Path) -> None:
    folder = RunFolder(root=tmp_path / "demo")
    refuse_differences(folder, [])
    with pytest.raises(UserError) as caught:
        refuse_differences(folder, [f"setting {i}" for i in range(14)])
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{folder.root} holds a run with other settings:"
    assert lines[1] == "  - setting 0"
    assert lines[-3] == "  - and 2 more"
    assert lines[-2].startswith(f"continue it as it was with `farflung run {folder.config}`, or start another")
