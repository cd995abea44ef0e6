"""A local run as a person starts it: real processes, a real kill -9."""

import os
import time
from pathlib import Path

import pytest

from farflung.cli import main
from farflung.telemetry.metrics import read_metrics
from farflung.trainer.checkpoint import Checkpoints
from forked import ForkedProcess

SETTINGS = """
[run]
name = "mine"
local = true
[environment]
name = "sort-digits"
args = {num_digits = 2}
[pool]
groups_per_slot = 2
groups_per_batch = 4
group_size = 4
max_prompt_tokens = 8
max_completion_tokens = 3
[trainer]
max_versions = 5
model = {hidden_size = 16, num_layers = 1, num_heads = 2, intermediate_size = 16}
evaluation = {num_tasks = 4, every_versions = 5}
"""


def trainer(folder: Path, **environment: str) -> int:
    """`farflung trainer`, to its end."""
    words = ["trainer", str(folder / "mine.toml"), "--run.dir", str(folder)]
    process = ForkedProcess(words, folder / "log", environment)
    until_s = time.monotonic() + 100
    while process.exit_code is None:
        assert time.monotonic() < until_s, (folder / "log").read_text()
        time.sleep(0.02)
    return process.exit_code


def samplers_of(folder: Path) -> list[int]:
    """Processes that sample for the run in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = b"farflung.local.sampler" in (path / "cmdline").read_bytes()
            if is_ours and os.readlink(path / "fd" / "2") == str(folder / "log"):
                found.append(int(path.name))
        except OSError:
            continue  # gone by now
    return found


def test_killed_with_9_a_run_goes_on_and_its_samplers_do_not_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SETTINGS)
    assert trainer(tmp_path, FARFLUNG_KILL_AT="announced@3") == -9
    until_s = time.monotonic() + 20
    while samplers_of(tmp_path):
        assert time.monotonic() < until_s, "a sampler has outlived its trainer"
        time.sleep(0.05)
    assert trainer(tmp_path) == 0, (tmp_path / "log").read_text()
    folder = tmp_path / "mine"
    versions = [row["version"] for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == "train"]
    assert sorted(set(versions)) == [1, 2, 3, 4, 5]  # what was not on disk yet is made again
    newest = Checkpoints(folder / "checkpoints", keep=2).load_newest()
    assert newest is not None
    assert [pairs for _, pairs in newest.buffer_snapshot["trained"]] == [[[2 * v, 2 * v + 2]] for v in range(5)]


def test_a_local_run_has_no_other_roles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text(SETTINGS)
    for role in ("coordinator", "worker", "validator"):
        assert main.main([role, str(tmp_path / "mine.toml"), "--run.dir", str(tmp_path)]) == 2
        assert f"is a local run (run.local), which has no {role}" in capsys.readouterr().err


def test_a_folder_of_a_local_run_is_not_continued_with_all_roles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine.toml").write_text(SETTINGS)
    (tmp_path / "mine" / "config.toml").write_text(SETTINGS)
    words = ["run", str(tmp_path / "mine.toml"), "--run.dir", str(tmp_path), "--run.local", "false"]
    assert main.main(words) == 2
    assert "run.local: True there, False now" in capsys.readouterr().err


def test_the_local_demo_is_another_run_than_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["demo", "--local", "--seed", "3", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert 'name = "demo-local-3"' in shown
    assert "local = true" in shown
