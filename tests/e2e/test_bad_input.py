"""What only real processes can get wrong: one sentence on stderr, exit code 2, no traceback, in bounded time.

Wrong words, files and values are tested without processes in tests/cli and tests/config.
"""

import http.server
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit import audit
from farflung.cli.run_folder import RunFolder
from farflung.envs.registry import load_environment
from farflung.model.factory import random_state
from farflung.model.folder import save_folder
from farflung.trainer.config import ModelSourceConfig
from farflung.trainer.model_source import describe
from processes import ENVIRONMENT, FARFLUNG, PATIENCE_S, run_command
from real_run import CONFIG

NOBODY_LISTENS = "http://127.0.0.1:1"
SOON_S = 60.0
"""Starting Python with torch included, on a loaded machine."""


def complaint(*words: str, cwd: Path) -> str:
    """The last line of stderr of a command that must fail as a user's mistake; the lines before are its log."""
    result = run_command(*words, timeout_s=SOON_S, cwd=cwd)
    *log, sentence = result.stderr.splitlines()
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert all(" INFO " in line for line in log), result.stderr
    assert sentence.startswith("farflung: ")
    return sentence.removeprefix("farflung: ")


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


class Stranger(http.server.BaseHTTPRequestHandler):
    """Speaks HTTP, and has never heard of pools."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


@pytest.fixture
def other_server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("--pool.group_size=1", "pool.group_size is 1 (command line); it must be at least 2"),
        ("--pool.temperature=0", "pool.temperature is 0 (command line); it must be greater than 0"),
        ("--trainer.objective.delta=1.2", "delta must exceed 1 + clip_high = 1.28"),
        ("--trainer.optimizer.lr=-1", "trainer.optimizer.lr is -1 (command line); it must be at least 0"),
        ("--trainer.lerning_rate=1", "unknown setting --trainer.lerning_rate on the command line; did you mean"),
    ],
)
def test_a_wrong_setting_starts_nothing(tmp_path: Path, setting: str, sentence: str) -> None:
    assert sentence in complaint("run", "demo", setting, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("role", ["trainer", "worker", "validator"])
def test_a_role_gives_up_on_a_coordinator_that_is_not_there(tmp_path: Path, role: str) -> None:
    words = [role, "demo", "--coordinator", NOBODY_LISTENS, f"--{role}.unreachable_s=0.5"]
    assert complaint(*words, cwd=tmp_path) == (
        f"coordinator at {NOBODY_LISTENS}: GET /v1/pool failed: connection refused (gave up after 0.5 s); is the "
        "coordinator running, and is this its address?"
    )


def test_a_role_recognises_that_somebody_else_answers(tmp_path: Path, other_server: str) -> None:
    sentence = complaint("validator", "--coordinator", other_server, cwd=tmp_path)
    assert sentence.startswith("the coordinator does not go along: malformed_record: ")
    assert "which is not a refusal of a farflung coordinator" in sentence


def test_a_coordinator_names_the_port_that_it_cannot_have(tmp_path: Path, busy_port: int) -> None:
    assert complaint("coordinator", "demo", f"--coordinator.port={busy_port}", cwd=tmp_path) == (
        f"port {busy_port} on 127.0.0.1 is in use: stop the program that listens there, or choose another "
        "coordinator.port (0 = any free one)"
    )


def test_a_folder_without_a_model_is_told_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    sentence = complaint("run", "demo", "--trainer.model.path=empty", cwd=tmp_path)
    assert sentence.startswith('trainer.model.path is "empty": empty has no config.json: ')
    assert not (tmp_path / "runs").exists()


def test_damaged_weights_end_the_run_with_the_sentence_of_the_trainer(tmp_path: Path) -> None:
    """Weights are read by the trainer alone, so this comes from a process that the supervisor watches."""
    tiny = describe(ModelSourceConfig(), load_environment("sort-digits", 0, {"num_digits": 6}))
    save_folder(tmp_path / "model", tiny.config, random_state(tiny.config, 0), tiny.tokenizer.files)
    with (tmp_path / "model" / "model.safetensors").open("r+b") as weights:
        weights.truncate(1000)
    sentence = complaint("run", "demo", "--trainer.model.path=model", cwd=tmp_path)
    assert sentence.startswith("trainer ended with code 2: model/model.safetensors is not a safetensors file: ")
    assert sentence.endswith("fetch it again")


FULL_DISK = """
mount -t tmpfs -o size=32m none "$1" || exit 99
fallocate -l "$4" "$1/ballast"
run() { "${@:6}" run "$2" --run.dir="$1" --supervisor.min_free_bytes="$5"; echo "exit code $?" >&2; }
run "${@}"
rm "$1/ballast"
run "${@}"
cp -r "$1/e2e" "$3"
"""
"""In a mount of its own, seen by nobody else and gone with its shell: a run that fills the disk, and goes on later."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ballast", "min_free_bytes", "sentence"),
    [
        ("20M", 8 << 20, "is full: "),
        ("27M", 0, "No space left on device: free some space and start again"),
    ],
)
def test_a_full_disk_ends_the_run_with_a_sentence_and_it_goes_on_when_there_is_room(
    tmp_path: Path, ballast: str, min_free_bytes: int, sentence: str
) -> None:
    """Told by whoever sees it first: the supervisor that watches the free space, or a role that cannot write."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow private mounts")
    disk, copy, config = tmp_path / "disk", tmp_path / "copy", tmp_path / "e2e.toml"
    disk.mkdir()
    config.write_text(CONFIG)
    result = subprocess.run(
        ["unshare", "-rm", "bash", "-c", FULL_DISK, "-", disk, config, copy, ballast, str(min_free_bytes), *FARFLUNG],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    if result.returncode == 99:
        pytest.skip(f"this system does not allow private mounts: {result.stderr}")
    complaint_line, *codes = result.stderr.splitlines()
    assert sentence in complaint_line
    assert codes == ["exit code 2", "exit code 0"]
    history = audit(RunFolder(root=copy))
    assert len(history.batches) == 40
