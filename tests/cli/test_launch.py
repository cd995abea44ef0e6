"""`farflung run` with tiny stand-ins for the roles: continue, refuse, finish, fail."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from farflung.cli import launch, main, trackers
from farflung.cli.config import RunConfig
from farflung.cli.ports import coordinator_url, usable_port
from farflung.cli.run_folder import RunFolder
from farflung.config.load import load
from farflung.supervisor.process import RoleSpec
from farflung.wire.node import Role

FINISH = "print('learned')"
USER_ERROR = "import sys; print('farflung: the model folder is empty'); sys.exit(2)"
CRASH = "raise KeyError('weights')"

Stand = Callable[[str], None]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Makes a piece of code the whole crew: it plays the trainer."""
    monkeypatch.chdir(tmp_path)

    def play(code: str) -> None:
        def specs(_config: RunConfig, folder: RunFolder) -> list[RoleSpec]:
            log_path = folder.logs / "trainer.log"
            return [
                RoleSpec(name="trainer", role=Role.TRAINER, command=(sys.executable, "-c", code), log_path=log_path)
            ]

        monkeypatch.setattr(launch, "role_specs", specs)

    return play


def test_a_finished_run_leaves_its_files_and_exits_with_0(stand_in: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(FINISH)
    assert main.main(["run", "demo"]) == 0
    names = {path.name for path in Path("runs/demo").iterdir()}
    assert names == {
        "config.toml",
        "curves.png",
        "lock",
        "logs",
        "pool.jsonl",
        "samples.html",
        "summary.json",
        "tokens",
    }
    assert json.loads(Path("runs/demo/summary.json").read_text())["seed"] == 0
    assert "runs/demo/curves.png" in capsys.readouterr().out
    assert "learned" in Path("runs/demo/logs/trainer.log").read_text()


def test_the_resolved_configuration_is_kept_with_the_port_that_was_chosen(stand_in: Stand) -> None:
    stand_in(FINISH)
    main.main(["run", "demo", "--trainer.max_versions", "7"])
    kept = load(RunConfig, Path("runs/demo/config.toml")).config
    assert kept.trainer.max_versions == 7
    assert kept.coordinator.port > 0


def test_the_same_run_goes_on_and_another_one_is_refused(stand_in: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(FINISH)
    assert main.main(["run", "demo"]) == 0
    assert main.main(["run", "demo", "--trainer.max_versions", "900", "--supervisor.num_workers", "3"]) == 0
    assert main.main(["run", "runs/demo/config.toml"]) == 0
    capsys.readouterr()
    assert main.main(["run", "demo", "--trainer.optimizer.lr", "0.5"]) == 2
    assert "  - trainer.optimizer.lr: 0.0005 there, 0.5 now\n" in capsys.readouterr().err
    assert main.main(["run", "demo", "--trainer.optimizer.lr", "0.5", "--run.name", "other"]) == 0


def test_a_finished_run_is_told_at_once_and_starts_nothing(stand_in: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(FINISH)
    assert main.main(["run", "demo", "--trainer.max_versions", "7"]) == 0
    Path("runs/demo/metrics.jsonl").write_text('{"time_s": 1.0, "kind": "progress", "version": 7}\n')
    wall_s = json.loads(Path("runs/demo/summary.json").read_text())["wall_s"]
    capsys.readouterr()
    stand_in(CRASH)
    assert main.main(["run", "demo", "--trainer.max_versions", "7"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("runs/demo is finished at version 7; nothing was started\n")
    assert out.endswith("to go on: farflung run runs/demo/config.toml --trainer.max_versions 14\n")
    assert json.loads(Path("runs/demo/summary.json").read_text())["wall_s"] == wall_s


def test_trackers_are_there_while_the_roles_are_and_what_they_have_is_told(
    stand_in: Stand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(FINISH)
    seen: list[object] = []

    @contextmanager
    def stand_in_trackers(names: Sequence[str], folder: RunFolder, **_: object) -> Iterator[None]:
        seen.append((list(names), (folder.logs / "trainer.log").exists()))
        yield
        seen.append((folder.logs / "trainer.log").exists())

    monkeypatch.setattr(trackers, "Trackers", stand_in_trackers)
    assert main.main(["run", "demo", "--telemetry.sinks", '["wandb"]']) == 0
    assert seen == [(["wandb"], False), True]
    assert capsys.readouterr().out.endswith("\n  wandb: 0 rows\n")


def test_a_user_error_of_a_role_is_told_as_its_sentence(stand_in: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(USER_ERROR)
    assert main.main(["run", "demo"]) == 2
    assert capsys.readouterr().err == "farflung: trainer ended with code 2: the model folder is empty\n"


def test_a_full_disk_is_told_before_anything_is_started(stand_in: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(FINISH)
    assert main.main(["run", "demo", "--supervisor.min_free_bytes", str(2**60)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("farflung: the disk of runs/demo is full: ")
    assert "at least 1099511627776 MiB needed; free some space and start again" in err
    assert not Path("runs/demo/logs").exists()


def test_a_role_that_crashes_again_and_again_is_told_with_its_log(
    stand_in: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(CRASH)
    words = ["--supervisor.max_restarts", "1", "--supervisor.restart_first_delay_s", "0"]
    assert main.main(["run", "demo", *words]) == 1
    captured = capsys.readouterr()
    assert "trainer ended with code 1: KeyError: 'weights'; starting again in 0 s\n" in captured.out
    assert captured.err == (
        "farflung: trainer ended with code 1: KeyError: 'weights'; it crashed again and again, its log is "
        "runs/demo/logs/trainer.log\n"
    )


def test_each_process_is_started_with_its_own_settings(tmp_path: Path) -> None:
    overrides = "[{}, {speed = 0.5, max_batch_rows = 32}]"
    config = load(
        RunConfig,
        None,
        [f"--run.dir={tmp_path}", f"--supervisor.worker_overrides={overrides}", "--supervisor.num_workers=3"],
    ).config
    folder = launch.folder_of(config)
    specs = {spec.name: spec for spec in launch.role_specs(config, folder)}
    assert list(specs) == ["coordinator", "trainer", "worker-1", "worker-2", "worker-3", "validator-1"]
    command = specs["worker-2"].command
    assert command[:6] == (sys.executable, "-P", "-m", "farflung.cli.main", "worker", str(folder.config))
    assert command[6:8] == ("--coordinator", "http://127.0.0.1:7400")
    assert command[-3:] == ("--worker.node=worker-2", "--worker.speed=0.5", "--worker.max_batch_rows=32")
    assert specs["worker-3"].command[-1] == "--worker.node=worker-3"
    assert "--coordinator" not in specs["coordinator"].command


@pytest.mark.parametrize("where", [[], ["--local"]])
def test_consent_to_changes_is_for_one_start(
    where: list[str], monkeypatch: pytest.MonkeyPatch, stand_in: Stand
) -> None:
    role_specs = launch.role_specs
    stand_in(FINISH)
    commands: list[tuple[str, ...]] = []
    play = launch.role_specs

    def noting(config: RunConfig, folder: RunFolder) -> list[RoleSpec]:
        commands.extend(spec.command for spec in role_specs(config, folder) if spec.role is Role.TRAINER)
        return play(config, folder)

    monkeypatch.setattr(launch, "role_specs", noting)
    assert main.main(["run", "demo", *where]) == 0
    assert main.main(["run", "demo", *where, "--trainer.optimizer.lr=0.5", "--trainer.accept_changes=true"]) == 0
    kept = load(RunConfig, Path("runs/demo/config.toml")).config.trainer
    assert (kept.optimizer.lr, kept.accept_changes) == (0.5, False)
    assert main.main(["run", "runs/demo/config.toml"]) == 0
    assert [command[-1] == "--trainer.accept_changes=true" for command in commands] == [False, True, False]
    assert main.main(["run", "runs/demo/config.toml", "--trainer.optimizer.lr=0.1"]) == 2


def test_roles_reach_a_coordinator_that_listens_everywhere() -> None:
    assert coordinator_url("0.0.0.0", 1) == "http://127.0.0.1:1"
    assert coordinator_url("::1", 1) == "http://[::1]:1"
    assert coordinator_url("example.org", 1) == "http://example.org:1"
    assert usable_port("127.0.0.1", 0) > 0
