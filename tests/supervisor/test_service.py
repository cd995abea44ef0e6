"""Real processes with tiny fake roles: restarts, order of stopping, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from farflung.supervisor.policy import RestartPolicy
from farflung.supervisor.process import RoleSpec
from farflung.supervisor.service import Outcome, StopRequest, Supervisor, stopping
from farflung.wire.node import Role

POLICY = RestartPolicy(first_delay_s=0.05, max_delay_s=0.2, max_restarts=3, healthy_after_s=60.0)
PATIENCE_S = 20.0

SLEEP = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


def spec(folder: Path, name: str, code: str) -> RoleSpec:
    return RoleSpec(
        name=name,
        role=Role(name.partition("-")[0]),
        command=(sys.executable, "-S", "-c", code),
        log_path=folder / "logs" / f"{name}.log",
    )


def note(folder: Path, text: str) -> str:
    """Code that appends a line to a file which all fake roles share."""
    return f"open({str(folder / 'notes')!r}, 'a').write({text + chr(10)!r})"


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not yet reaped by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Run:
    """A supervisor in a thread."""

    def __init__(
        self, *specs: RoleSpec, stop_grace_s: float = PATIENCE_S, before_last: Callable[[], None] = lambda: None
    ) -> None:
        self.stop = StopRequest()
        self.lines: list[str] = []
        self.supervisor = Supervisor(specs, POLICY, stop_grace_s=stop_grace_s, report=self.lines.append)
        self.outcome: Outcome | None = None
        self._before_last = before_last
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.outcome = self.supervisor.run(self.stop, before_last=self._before_last)

    def result(self) -> Outcome:
        self._thread.join(PATIENCE_S)
        assert self.outcome is not None, "the supervisor did not end in time"
        return self.outcome


def test_the_run_is_finished_when_the_trainer_ends_well_and_the_others_are_stopped(tmp_path: Path) -> None:
    run = Run(spec(tmp_path, "worker-1", SLEEP), spec(tmp_path, "trainer", f"import time; {note(tmp_path, 'x')}"))
    assert run.result() == Outcome(kind="finished", culprit="trainer", sentence="trainer ended with code 0")
    assert run.supervisor.pids() == {}


def test_a_worker_that_leaves_when_the_run_is_over_is_no_news(tmp_path: Path) -> None:
    trainer = spec(tmp_path, "trainer", "import time; time.sleep(0.5)")
    run = Run(spec(tmp_path, "worker-1", note(tmp_path, "left")), trainer)
    assert run.result().kind == "finished"
    assert notes(tmp_path) == ["left"]
    assert run.lines == []


def test_a_role_killed_with_signal_9_comes_back_and_the_cause_is_told(tmp_path: Path) -> None:
    run = Run(spec(tmp_path, "worker-1", SLEEP))
    wait_for(lambda: "worker-1" in run.supervisor.pids())
    first = run.supervisor.pids()["worker-1"]
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: run.supervisor.pids().get("worker-1", first) != first)
    run.stop.ask()
    assert run.result().kind == "stopped"
    assert run.lines == [
        "worker-1 was killed by SIGKILL (out of memory?); starting again in 0.05 s",
        stopping([Role.WORKER]),
    ]


def test_a_user_error_ends_the_run_with_the_sentence_of_the_role(tmp_path: Path) -> None:
    code = "import sys; print('farflung: port 7400 is taken', file=sys.stderr); sys.exit(2)"
    run = Run(spec(tmp_path, "worker-1", SLEEP), spec(tmp_path, "coordinator", code))
    assert run.result() == Outcome(
        kind="user_error", culprit="coordinator", sentence="coordinator ended with code 2: port 7400 is taken"
    )


def test_a_role_that_crashes_at_once_every_time_ends_the_run_after_the_bound(tmp_path: Path) -> None:
    run = Run(spec(tmp_path, "coordinator", f"{note(tmp_path, 'life')}; raise KeyError('a')"))
    outcome = run.result()
    assert (outcome.kind, outcome.sentence) == ("gave_up", "coordinator ended with code 1: KeyError: 'a'")
    assert notes(tmp_path) == ["life"] * (1 + POLICY.max_restarts)


def test_roles_are_stopped_in_order_workers_then_trainer_then_coordinator(tmp_path: Path) -> None:
    names = ["coordinator", "trainer", "worker-1", "validator-1", "worker-2"]

    def code(name: str) -> str:
        return (
            "import signal, sys, time\n"
            f"def leave(*_): {note(tmp_path, name)}; sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, leave)\n"
            f"{note(tmp_path, 'ready')}\n"
            "time.sleep(600)"
        )

    def look() -> None:
        with (tmp_path / "notes").open("a") as file:
            file.write("last look\n")

    run = Run(*(spec(tmp_path, name, code(name)) for name in names), before_last=look)
    wait_for(lambda: notes(tmp_path).count("ready") == len(names))
    run.stop.ask()
    assert run.result().kind == "stopped"
    order = [line for line in notes(tmp_path) if line != "ready"]
    assert set(order[:3]) == {"worker-1", "worker-2", "validator-1"}
    assert order[3:] == ["trainer", "last look", "coordinator"]


def test_only_those_who_are_there_are_said_to_be_stopped() -> None:
    assert stopping([Role.COORDINATOR, Role.TRAINER, Role.WORKER, Role.VALIDATOR]) == (
        "stopping: workers and validators, then the trainer, then the coordinator; once more kills at once"
    )
    assert stopping([Role.TRAINER]) == "stopping: the trainer, when its step is made; once more kills at once"


def test_a_role_that_ignores_the_request_is_killed_after_the_grace(tmp_path: Path) -> None:
    stubborn = spec(tmp_path, "worker-1", STUBBORN)
    run = Run(stubborn, stop_grace_s=0.3)
    wait_for(lambda: stubborn.log_path.exists() and "ready" in stubborn.log_path.read_text())
    pid = run.supervisor.pids()["worker-1"]
    run.stop.ask()
    assert run.result().kind == "stopped"
    wait_for(lambda: not is_alive(pid))
    assert run.lines == [stopping([Role.WORKER]), "worker-1 did not stop within 0.3 s and is killed"]


def test_asking_twice_kills_at_once(tmp_path: Path) -> None:
    stubborn = spec(tmp_path, "worker-1", STUBBORN)
    run = Run(stubborn, stop_grace_s=600.0)
    wait_for(lambda: stubborn.log_path.exists() and "ready" in stubborn.log_path.read_text())
    run.stop.ask()
    time.sleep(0.3)
    run.stop.ask()
    assert run.result().kind == "stopped"


def test_trouble_that_only_a_person_can_end_ends_the_run(tmp_path: Path) -> None:
    looks: list[int] = []

    def trouble() -> str | None:
        looks.append(len(looks))
        return "the disk is full" if len(looks) > 1 else None

    worker = spec(tmp_path, "worker-1", SLEEP)
    supervisor = Supervisor([worker], POLICY, stop_grace_s=PATIENCE_S, report=lambda _: None, trouble=trouble)
    assert supervisor.run(StopRequest()) == Outcome(kind="user_error", sentence="the disk is full")
    assert supervisor.pids() == {}


def test_children_of_a_role_end_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    run = Run(spec(tmp_path, "validator-1", code))
    wait_for(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text() != "")
    child = int((tmp_path / "child").read_text())
    assert is_alive(child)
    os.kill(run.supervisor.pids()["validator-1"], signal.SIGKILL)
    wait_for(lambda: not is_alive(child))
    run.stop.ask()
    run.result()


def test_roles_run_with_one_thread_and_their_log_holds_what_they_print(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['OMP_NUM_THREADS']); print('err', file=sys.stderr); print(sys.argv[1])"
    trainer = spec(tmp_path, "trainer", code)
    assert Run(trainer).result().kind == "finished"
    assert sorted(trainer.log_path.read_text().splitlines()) == ["--leash-fd", "1", "err"]


ORPHANAGE = """
import sys
from pathlib import Path
from farflung.supervisor.policy import RestartPolicy
from farflung.supervisor.process import RoleSpec
from farflung.supervisor.service import StopRequest, Supervisor
from farflung.wire.node import Role

role_code = '''
import os, signal, sys, time
from farflung.supervisor.leash import hold
{preparation}
hold(int(sys.argv[-1]), grace_s=0.3)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
'''
folder = Path(sys.argv[1])
specs = [
    RoleSpec(
        name=name, role=Role.WORKER, log_path=folder / f"{{name}}.log",
        command=(sys.executable, "-c", role_code, str(folder / name)),
    )
    for name in ("worker-1", "worker-2")
]
policy = RestartPolicy(first_delay_s=1, max_delay_s=1, max_restarts=1, healthy_after_s=60)
Supervisor(specs, policy, stop_grace_s=1, report=print).run(StopRequest())
"""


@pytest.mark.parametrize("preparation", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_no_role_survives_a_supervisor_killed_with_signal_9(tmp_path: Path, preparation: str) -> None:
    script = ORPHANAGE.format(preparation=preparation)
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) as supervisor:
        pid_files = [tmp_path / "worker-1", tmp_path / "worker-2"]
        wait_for(lambda: all(path.exists() and path.read_text() for path in pid_files))
        pids = [int(path.read_text()) for path in pid_files]
        assert all(is_alive(pid) for pid in pids)
        supervisor.kill()
    wait_for(lambda: not any(is_alive(pid) for pid in pids))
