"""A run whose weights go through relays: one is killed, one lies, and the run ends well."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lying_relay
from farflung.wire.relay import RelayStatus
from processes import ENVIRONMENT
from real_run import RealRun, StartRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def liars() -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that are gone when the test is over."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start_liar(run: RealRun, liars: list["subprocess.Popen[str]"]) -> str:
    """Its URL."""
    environment = {**ENVIRONMENT, "PYTHONPATH": str(Path(lying_relay.__file__).parent)}
    command = [sys.executable, lying_relay.__file__, run.url]
    liars.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    assert liars[-1].stdout is not None
    return liars[-1].stdout.readline().strip()


def relays(run: RealRun) -> dict[str, RelayStatus]:
    status = run.status()
    return {relay.url: relay for relay in (status.relays if status else ())}


def listed(run: RealRun, node: str) -> list[str]:
    return [url for url, relay in relays(run).items() if relay.relay == node and not relay.problem]


def test_a_relay_is_killed_and_another_one_lies_and_the_run_ends_well(
    new_run: StartRun, liars: list["subprocess.Popen[str]"]
) -> None:
    run = new_run("--supervisor.num_workers=1", "--supervisor.worker_overrides=[]", "--relay.heartbeat_s=0.5")
    run.start("--relays", "2")
    run.wait_for_version(0)
    (killed,) = run.until(lambda: listed(run, "relay-1"), "relay-1 to be listed")
    run.until(lambda: listed(run, "relay-2"), "relay-2 to be listed")
    liar = start_liar(run, liars)
    run.until(lambda: liar in relays(run), "the liar to register")
    guest = run.start_worker("guest")
    run.until(lambda: f"{liar} sent" in run.log("guest") + run.log("worker-1"), "somebody to catch the liar")
    found = run.until(lambda: relays(run)[liar].problem.startswith("lied") and relays(run), "the liar to be dropped")
    assert found[liar].num_accusers > 0
    run.kill_role("relay-1")
    version = run.version()
    run.until(lambda: relays(run).get(killed) is None or relays(run)[killed].problem, "the dead relay to be dropped")
    run.until(lambda: listed(run, "relay-1"), "relay-1 to come back under another port")
    run.wait_for_version(version + 3)
    guest.send(signal.SIGTERM)
    run.finish()
    accuser = next(log for log in map(run.log, ("guest", "worker-1")) if f"{liar} sent" in log)
    assert "it is not asked again" in accuser
    assert "chunk bytes came from" in run.log("worker-1")
    assert f"came from {run.url}" not in run.log("worker-1"), "relays did it"
    assert run.tracebacks() == []


def test_a_run_goes_on_when_all_its_relays_are_gone(new_run: StartRun) -> None:
    run = new_run("--supervisor.num_workers=1", "--supervisor.worker_overrides=[]", "--supervisor.max_restarts=0")
    run.start("--relays", "1")
    run.wait_for_version(1)
    run.until(lambda: listed(run, "relay-1"), "the relay to be listed")
    os.kill(run.roles()["relay-1"], signal.SIGKILL)
    run.wait_for_version(run.version() + 5)
    run.finish()
    assert "given up after" in run.output
