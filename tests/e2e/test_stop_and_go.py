"""Stopped in order or killed, a run leaves no process behind, and the same command goes on with it."""

import signal

import pytest

from audit import audit, read_history
from processes import run_command
from real_run import RealRun, StartRun

pytestmark = pytest.mark.timeout(600)


def same_command(run: RealRun) -> list[str]:
    return ["run", str(run.config_path), *run.settings]


def test_the_same_command_goes_on_after_ctrl_c_and_after_kill_9_of_the_supervisor(new_run: StartRun) -> None:
    run = new_run("--run.seed=1", "--trainer.max_versions=24")
    run.start()
    run.wait_for_version(4)
    assert set(run.roles()) == {"coordinator", "trainer", "worker-1", "worker-2", "validator-1"}
    refused = run_command(*same_command(run))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"farflung: {run.folder.root} is in use by process {run.supervisor.pid}: ")

    run.supervisor.send(signal.SIGINT)
    assert run.exit_code() == 0
    assert run.orphans() == []
    assert run.output.endswith(f"stopped; continue with: farflung run {run.folder.config}\n")
    stopped = audit(run.folder)
    assert (run.folder.model / "config.json").exists()

    run.start()
    run.wait_for_version(len(stopped.publications) + 4)
    run.roles()
    run.supervisor.kill()
    run.wait_until_nobody_is_left()
    killed = read_history(run.folder)
    assert killed.publications[: len(stopped.publications)] == stopped.publications

    run.start()
    run.finish()
    finished = audit(run.folder)
    assert finished.publications[: len(killed.publications)] == killed.publications
    assert run.summary["versions"] == 24
    assert run.summary["final_accuracy"] > run.summary["initial_accuracy"]
    assert run.tracebacks() == []
    assert run.orphans() == []
