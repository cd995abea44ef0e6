"""`farflung forward`: a run's folder to a tracker."""

import json
from pathlib import Path

import pytest

from farflung.cli import main
from farflung.cli.config import RunConfig
from farflung.cli.forward import target_of
from farflung.cli.run_folder import RunFolder
from farflung.config.load import load


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("farflung.cli.forward.log_to_stderr", lambda _: None)
    root = tmp_path / "demo"
    root.mkdir()
    (root / "config.toml").write_text('[run]\nname = "demo"\n[telemetry]\nproject = "mine"\n')
    row = {"kind": "train", "time_s": 1.0, "version": 1, "reward/mean": 0.5}
    (root / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    return root


def test_a_finished_run_is_forwarded_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    for _ in range(2):
        assert main.main(["forward", str(root), "--to", "tensorboard"]) == 0
        assert capsys.readouterr().out == f"1 rows of {root} are with tensorboard\n"
    assert len(list((root / "tensorboard").iterdir())) == 1


def test_a_folder_that_is_no_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["forward", str(tmp_path), "--to", "tensorboard"]) == 2
    assert f"farflung: {tmp_path} is no run" in capsys.readouterr().err


def test_a_tracker_that_is_unknown_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["forward", str(root), "--to", "mlflow"]) == 2
    assert "invalid choice: 'mlflow'" in capsys.readouterr().err


def test_a_tracker_hears_nothing_of_addresses_folders_and_secrets() -> None:
    words = ["--coordinator.database_url=postgresql://me:secret@db/x", "--run.dir=/home/me", "--run.seed=3"]
    config = load(RunConfig, None, [*words, "--telemetry.run_name=first"]).config
    target = target_of(config, RunFolder(root=Path("/home/me/run")), "ab12")
    assert "secret" not in str(target.settings)
    assert "/home/me" not in str(target.settings)
    assert target.settings["trainer"]["optimizer"]["lr"] == config.trainer.optimizer.lr
    assert (target.project, target.run_name, target.run_id) == ("farflung", "first", "ab12")
