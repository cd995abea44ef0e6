"""The roles of a deterministic run as processes without a supervisor: started, killed and started again by hand.

A trainer is told the moment at which to kill itself (`farflung.trainer.marks`).
"""

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farflung.cli.run_folder import RunFolder
from farflung.trainer.marks import VARIABLE
from farflung.wire.node import PoolStatus
from forked import ForkedProcess
from processes import PATIENCE_S

POLL_S = 0.05
KILLED = -9

CONFIG = """
[run]
name = "apart"
dir = "{folder}"
seed = 3

[environment]
name = "sort-digits"
args = {{num_digits = 3}}

[pool]
name = "apart"
deterministic = true
group_size = 4
groups_per_slot = 4
groups_per_batch = 8
max_staleness = {max_staleness}
max_prompt_tokens = 8
max_completion_tokens = 6
lease_s = 60.0

[coordinator]
port = {port}
silent_after_s = 5.0
sweep_s = 0.1

[trainer]
max_versions = 12
heartbeat_s = 1.0

[trainer.objective]
name = "flaky_objective:flaky"

[trainer.optimizer]
lr = 2e-3
warmup_steps = 0
steps_per_version = 2

[trainer.model]
hidden_size = 32
num_layers = 1
num_heads = 2
intermediate_size = 64

[trainer.warm_start]
max_steps = 60
target_accuracy = 0.4
batch_size = 32
eval_every_steps = 10

[trainer.evaluation]
every_versions = 2
num_tasks = 100

[worker]
heartbeat_s = 0.5

[validator]
heartbeat_s = 0.5
"""


@dataclass
class ApartRun:
    """One run in a folder of its own."""

    folder: Path
    max_staleness: int = 1
    settings: Sequence[str] = ()
    """Of every role."""
    processes: dict[str, ForkedProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.port = _free_port()
        self.config_path = self.folder / "apart.toml"
        self.config_path.write_text(CONFIG.format(folder=self.folder, port=self.port, max_staleness=self.max_staleness))

    @property
    def run_folder(self) -> RunFolder:
        return RunFolder(root=self.folder / "apart")

    def start(self, name: str, *, kill_at: str = "") -> ForkedProcess:
        """`coordinator`, `trainer`, or `worker-1`, `validator-1` and the like."""
        role, _, number = name.partition("-")
        words = [role, str(self.config_path), *self.settings]
        if number:
            words.append(f"--{role}.node={name}")
        log_path = self.folder / "logs" / f"{name}.log"
        self.processes[name] = ForkedProcess(words, log_path, {VARIABLE: kill_at})
        return self.processes[name]

    def start_others(self, num_workers: int = 1) -> None:
        """Everybody but the trainer."""
        self.start("coordinator")
        self.until(lambda: self.status() is not None, "the coordinator to answer")
        for number in range(1, num_workers + 1):
            self.start(f"worker-{number}")
        self.start("validator-1")

    def kill(self, name: str) -> None:
        self.processes[name].kill()

    def status(self) -> PoolStatus | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/status", timeout=2) as answer:
                return PoolStatus.from_bytes(answer.read())
        except (OSError, urllib.error.URLError):
            return None

    def version(self) -> int:
        status = self.status()
        return -1 if status is None else status.policy_version

    def wait_for_trainer(self, expected_code: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        trainer = self.processes["trainer"]

        def has_ended() -> bool:
            meanwhile()
            return trainer.exit_code is not None

        self.until(has_ended, "the trainer to end")
        assert trainer.exit_code == expected_code, f"code {trainer.exit_code}\n{self.logs()}"

    def until(self, ask: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not ask():
            assert time.monotonic() < deadline_s, f"waited for {what}\n{self.logs()}"
            time.sleep(POLL_S)

    def logs(self) -> str:
        """The end of every log."""
        paths = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in paths)

    def clean_up(self) -> None:
        """End what was started and still runs."""
        for process in self.processes.values():
            if process.exit_code is None:
                process.kill()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
