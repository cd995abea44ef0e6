"""`farflung run` with its real processes: started through the command line, watched, killed, cleaned up."""

import json
import os
import signal
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from farflung.cli.run_folder import RunFolder
from farflung.telemetry.metrics import MetricsRow, read_metrics
from farflung.wire.node import PoolStatus
from processes import ENVIRONMENT, PATIENCE_S, Process, belongs_to, children, role_name

POLL_S = 0.05
TAIL_LINES = 15

CONFIG = """
# A tiny model learns to sort four digits: about 20 seconds on two cores.
[run]
name = "e2e"

[environment]
name = "sort-digits"
args = {num_digits = 4}

[pool]
name = "e2e"
group_size = 8
groups_per_slot = 16
groups_per_batch = 64
max_staleness = 4
max_outstanding_groups = 192
max_prompt_tokens = 8
max_completion_tokens = 6
lease_s = 5.0

[coordinator]
port = 0
silent_after_s = 5.0
keep_versions = "none"
judge_s = 5.0

[trainer]
max_versions = 40

[trainer.optimizer]
lr = 5e-4
warmup_steps = 5

[trainer.warm_start]
max_steps = 400
target_accuracy = 0.3
batch_size = 64
lr = 4e-3

[trainer.evaluation]
every_versions = 10
num_tasks = 1000

[worker]
heartbeat_s = 0.5

[validator]
heartbeat_s = 0.5

[supervisor]
num_workers = 2
worker_overrides = [{}, {speed = 0.5}]
restart_max_delay_s = 1.0
max_restarts = 1000
"""


class RealRun:
    """One run folder, with the supervisor that works in it or has worked in it."""

    def __init__(self, parent: Path, *settings: str, name: str = "e2e", environment: Mapping[str, str] = {}) -> None:
        self.folder = RunFolder(root=parent / name)
        self.config_path = parent / f"{name}.toml"
        self.config_path.write_text(CONFIG)
        self.settings = [f"--run.dir={parent}", f"--run.name={name}", *settings]
        self.environment = {**ENVIRONMENT, **environment}
        self.supervisor: Process | None = None
        self.others: list[Process] = []
        self._roles_seen: dict[int, str] = {}

    # -- processes ------------------------------------------------------------------------------------------------

    def start(self, *settings: str) -> None:
        """Start or continue the run."""
        words = ["run", str(self.config_path), *self.settings, *settings]
        output_path = self.folder.root.with_name(f"{self.folder.root.name}.out")
        self.supervisor = Process(words, output_path, self.environment)

    def start_worker(self, node: str, *settings: str) -> Process:
        """A worker that no supervisor knows, by URL."""
        words = ["worker", "--coordinator", self.url, f"--worker.node={node}", "--worker.heartbeat_s=0.5", *settings]
        worker = Process(words, self.folder.logs / f"{node}.log")
        self.others.append(worker)
        return worker

    def roles(self) -> dict[str, int]:
        """Process name -> id of the roles that run now."""
        if self.supervisor is None:
            return {}
        found = {role_name(pid): pid for pid in children(self.supervisor.pid)}
        roles = {name: pid for name, pid in found.items() if name is not None}
        self._roles_seen |= {pid: name for name, pid in roles.items()}
        return roles

    def kill_role(self, name: str) -> int:
        """`kill -9` as soon as the role runs; its process id."""
        pid: int = self.until(lambda: self.roles().get(name), f"{name} to run")
        os.kill(pid, signal.SIGKILL)
        return pid

    def finish(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait for the end of the run, which must be a good one."""
        code = self.exit_code(timeout_s)
        assert code == 0, self.report(f"the run ended with code {code}")

    def exit_code(self, timeout_s: float = PATIENCE_S) -> int:
        assert self.supervisor is not None, "start it first"
        self.until(lambda: self.supervisor and self.supervisor.exit_code is not None, "the run to end", timeout_s)
        assert self.supervisor.exit_code is not None
        return self.supervisor.exit_code

    def wait_until_nobody_is_left(self) -> None:
        """After the supervisor was killed."""
        self.until(lambda: not self.orphans(), "the roles to notice that their supervisor is gone", is_over=True)

    def orphans(self) -> list[int]:
        """Roles of this run that were seen by `roles` and are still there, whoever their parent is."""
        return [pid for pid in self._roles_seen if belongs_to(pid, self.folder.root)]

    def clean_up(self) -> None:
        """End what is left of the processes that this run has started."""
        for process in [self.supervisor, *self.others]:
            if process is not None and process.exit_code is None:
                self.roles()
                process.kill()
        for pid in self.orphans():
            os.kill(pid, signal.SIGKILL)

    # -- looking --------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        config = tomllib.loads(self.folder.config.read_text())
        return f"http://127.0.0.1:{config['coordinator']['port']}"

    def status(self) -> PoolStatus | None:
        """The coordinator's picture; None while it is away."""
        try:
            with urllib.request.urlopen(f"{self.url}/v1/status", timeout=2) as answer:
                return PoolStatus.from_bytes(answer.read())
        except (OSError, urllib.error.URLError):
            return None

    def version(self) -> int:
        """Newest version that the coordinator has told of just now; -1 while it has none, or is away."""
        status = self.status()
        return -1 if status is None else status.policy_version

    def wait_for_version(self, version: int, timeout_s: float = PATIENCE_S) -> None:
        self.until(lambda: self.version() >= version, f"version {version}", timeout_s)

    def metrics(self, kind: str) -> list[MetricsRow]:
        return [row for row in read_metrics(self.folder.metrics) if row["kind"] == kind]

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.folder.summary.read_text())
        return found

    @property
    def output(self) -> str:
        """What the person in front of the terminal has seen, over all sessions."""
        assert self.supervisor is not None, "start it first"
        return self.supervisor.output

    def log(self, name: str) -> str:
        """Of one process, over all its lives."""
        return (self.folder.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def tracebacks(self) -> list[str]:
        """Lines of logs that start a traceback, with the file's name."""
        return [f"{path.name}: {line}" for path in self._logs() for line in _lines(path) if "Traceback" in line]

    def until(self, ask: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S, *, is_over: bool = False) -> Any:
        """The first answer that is true; fails with the logs when there is none in time.

        Args:
            is_over: whether to wait although the supervisor has ended, which is else a reason to wait no more.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            has_ended = not is_over and self.supervisor is not None and self.supervisor.exit_code is not None
            if answer := ask():
                return answer
            if has_ended or time.monotonic() > deadline_s:
                pytest.fail(self.report(f"waited for {what}{', but the run has ended' if has_ended else ''}"))
            time.sleep(POLL_S)

    def report(self, headline: str) -> str:
        """The headline and the end of every log."""
        tails = ["\n".join([f"== {path.name}", *_lines(path)[-TAIL_LINES:]]) for path in self._logs()]
        return "\n".join([headline, *tails])

    def _logs(self) -> list[Path]:
        return [*self.folder.root.parent.glob("*.out"), *sorted(self.folder.logs.glob("*.log"))]


StartRun = Callable[..., RealRun]
"""What the fixture `new_run` is: makes a run with these settings on top of `CONFIG`, and does not start it."""


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
