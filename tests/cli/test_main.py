"""The command line from outside: help, bad input, dry run."""

# ruff: noqa: E501 (sentences are asserted whole)

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from farflung.cli import launch, main
from farflung.cli.arguments import split_settings
from farflung.errors import OurFault

COMMANDS = [
    "demo",
    "run",
    "coordinator",
    "trainer",
    "worker",
    "validator",
    "audit",
    "verify",
    "calibrate",
    "status",
    "model",
    "eval",
    "env",
    "data",
    "rollouts",
    "serve",
    "relay",
    "weights",
    "chat",
    "grade",
    "sandbox",
    "sft",
    "plot",
    "forward",
    "settings",
]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    try:
        code = main.main(words)
    except SystemExit as leave:
        code = int(leave.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_settings_are_told_from_options_wherever_they_stand() -> None:
    words = [
        "--trainer.optimizer.lr",
        "1e-5",
        "run",
        "--pool.group-size=4",
        "x.toml",
        "--dry-run",
        "--run.seed",
        "--dry-run",
    ]
    assert split_settings(words) == (
        ["run", "x.toml", "--dry-run", "--dry-run"],
        ["--trainer.optimizer.lr", "1e-5", "--pool.group-size=4", "--run.seed"],
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rum"], "unknown command 'rum': did you mean run?; `farflung --help` explains"),
        ([], "missing: COMMAND; `farflung --help` explains"),
        (["run"], "missing: CONFIG; `farflung run --help` explains"),
        (["run", "nope.toml"], "there is no file nope.toml; . holds bad.toml, run.toml"),
        (["run", "rum.toml"], "there is no file rum.toml; did you mean run.toml?"),
        (["run", "demos"], "demos is neither a file nor a configuration that comes with farflung; did you mean demo?"),
        (["run", "run.toml", "--trainr.optimizer.lr", "1"], "unknown setting --trainr.optimizer.lr on the command line; did you mean --trainer.optimizer.lr?"),
        (["run", "run.toml", "--trainer.optimizer.lr"], "--trainer.optimizer.lr has no value"),
        (["run", "run.toml", "--trainer.optimizer.lr=-1"], "trainer.optimizer.lr is -1 (command line); it must be at least 0"),
        (["run", "bad.toml"], "unknown setting trainer.learning_rate (bad.toml:2); did you mean trainer."),
        (["run", "run.toml", "--environment.name=sort-digit"], 'unknown environment "sort-digit"; did you mean sort-digits?'),
        (["run", "run.toml", "--environment.args.num_digit=4"], "num_digit"),
        (["run", "run.toml", "--trainer.model.path=no/such/model"], 'trainer.model.path is "no/such/model"'),
        (["run", "run.toml", "--coordinator.host=203.0.113.7"], "203.0.113.7"),
        (["demo", "--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["demo", "--seed=-1"], "run.seed is -1 (command line); it must be at least 0"),
        (["worker"], "farflung worker needs the coordinator's address"),
        (["worker", "--coordinator", "10.0.0.7"], "--coordinator is '10.0.0.7': it must be a URL"),
        (["trainer", "run.toml"], "run.toml lets the coordinator take any free port"),
        (["validator", "--coordinator", "http://"], "--coordinator is 'http://': it must be a URL"),
        (["worker", "--coordinator", "http://:7400"], "--coordinator is 'http://:7400': it must be a URL"),
        (["worker", "--coordinator", "http://a:70000"], "--coordinator is 'http://a:70000': it must be a URL"),
        (["status", "https://"], "'https://' is not the address of a coordinator"),
        (["run", "demo", "--trainer.max_versions", "10000000000"], "trainer.max_versions"),
        (["run", "demo", "--supervisor.num_workers", "100000"], "supervisor.num_workers"),
        (["run", "demo", "--trainer.model.hidden_size", "65536"], "billion weights, at most 2 billion can be made"),
        (["status", "10.0.0.7"], "'10.0.0.7' is not the address of a coordinator"),
        (["status", "http://127.0.0.1:1"], "is the coordinator running, and is this its address?"),
    ],
)  # fmt: skip
def test_bad_input_gives_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.toml").write_text("[coordinator]\nport = 0\n")
    Path("bad.toml").write_text("[trainer]\nlearning_rate = 1\n")
    code, out, err = run(*words, capsys=capsys)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("farflung: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not Path("runs").exists() or list(Path("runs").rglob("*.toml")) == []


def test_a_busy_port_is_named_and_nothing_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = run("run", "demo", f"--coordinator.port={port}", capsys=capsys)
    assert code == 2
    assert err == (
        f"farflung: port {port} of 127.0.0.1 is in use: stop the process that listens there, or choose another port "
        "with --coordinator.port (0 = any free one)\n"
    )


def test_a_folder_that_cannot_be_made_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs").write_text("a file")
    code, _, err = run("demo", capsys=capsys)
    assert (code, err) == (
        2,
        "farflung: runs/demo/metrics.jsonl: Not a directory; choose a folder that can be written to with --run.dir\n",
    )


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place where nothing can be made")
def test_a_place_where_nothing_can_be_made_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("run", "demo", "--run.dir=/proc/x", capsys=capsys)
    assert (code, err) == (
        2,
        "farflung: /proc/x/demo cannot be made: choose a folder that can be written to with --run.dir\n",
    )
    code, _, err = run("worker", "--coordinator", "http://127.0.0.1:1", "--log", "/proc/x/log", capsys=capsys)
    assert (code, err) == (
        2,
        "farflung: --log /proc/x/log: No such file or directory; name a file that can be written\n",
    )


def test_a_list_of_tables_has_its_source_in_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("run", "demo", "--dry-run", "--supervisor.worker_overrides=[{}, {speed = 0.5}]", capsys=capsys)
    assert "worker_overrides = [{}, {speed = 0.5}]" in out
    assert next(line for line in out.splitlines() if "worker_overrides" in line).endswith("# command line")


def test_a_dry_run_prints_every_setting_with_its_source_and_starts_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("my.toml").write_text("[trainer.optimizer]\nlr = 0.5\n")
    code, out, err = run("run", "my.toml", "--dry-run", "--pool.group_size", "4", capsys=capsys)
    assert (code, err) == (0, "")
    lines = [re.sub(r" +", " ", line) for line in out.splitlines()]
    assert "lr = 0.5 # my.toml:2" in lines
    assert "group_size = 4 # command line" in lines
    assert "max_staleness = 4 # default" in lines
    assert all("  # " in line for line in out.splitlines() if " = " in line)
    assert [path.name for path in Path().iterdir()] == ["my.toml"]


def test_the_output_of_a_dry_run_is_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    _, first, _ = run("demo", "--dry-run", capsys=capsys)
    Path("again.toml").write_text(first)
    code, second, _ = run("run", "again.toml", "--dry-run", capsys=capsys)

    def settings(text: str) -> list[str]:
        return [line.partition("  # ")[0].rstrip() for line in text.splitlines()]

    assert code == 0
    assert settings(second) == settings(first)


def test_a_seed_names_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    for words, name in (
        (["demo"], "demo"),
        (["demo", "--seed", "3"], "demo-3"),
        (["demo", "--seed", "3", "--name", "x"], "x"),
    ):
        _, out, _ = run(*words, "--dry-run", capsys=capsys)
        assert f'name = "{name}"' in out


def test_a_finished_demo_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("runs/demo")
    folder.mkdir(parents=True)
    metrics = folder / "metrics.jsonl"
    metrics.write_text('{"kind": "train", "version": 20}\n{"kind": "progress", "version": 19}\n')
    words = ("demo", "--dry-run", "--trainer.max_versions", "20")
    assert 'name = "demo"' in run(*words, capsys=capsys)[1]
    metrics.write_text('{"kind": "progress", "version": 20}\n')
    assert 'name = "demo-run2"' in run(*words, capsys=capsys)[1]


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("--help", capsys=capsys)
    assert code == 0
    assert all(re.search(rf"^    {command} ", out, re.MULTILINE) for command in COMMANDS)
    assert "farflung demo" in out
    assert "several machines" in out
    code, out, _ = run("demo", "--help", capsys=capsys)
    assert "what to look at" in out
    assert "not the loss, which stays near 0" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example_and_fits_80_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(command, "--help", capsys=capsys)
    assert code == 0
    assert re.search(rf"example.*\n  farflung {command}", out)
    assert max(len(line) for line in out.splitlines()) <= 80


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("--version", capsys=capsys)
    assert code == 0
    assert re.fullmatch(r"farflung \d+\.\d+\.\d+\S*\n", out)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from farflung.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'aiohttp', 'rich', 'matplotlib', 'sqlalchemy', 'pyarrow'}\n"
        "sys.exit(', '.join(heavy & sys.modules.keys()) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_coordinator_starts_without_torch() -> None:
    code = (
        "import sys\n"
        "from farflung.cli.config import RunConfig\n"
        "from farflung.cli.roles import SERVICES\n"
        "SERVICES['coordinator'](RunConfig(), '', None)\n"
        "sys.exit(', '.join({'torch', 'transformers', 'rich', 'matplotlib'} & sys.modules.keys()) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_bug_ends_in_a_sentence_with_the_path_of_its_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_loaded: object) -> int:
        raise OurFault("two and two is five")

    monkeypatch.setattr(launch, "launch", fail)
    code, out, err = run("demo", capsys=capsys)
    assert (code, out) == (1, "")
    words, _, path = err.strip().partition("; the details are in ")
    assert words == "farflung: two and two is five"
    assert "in fail\n" in Path(path).read_text()
    Path(path).unlink()


def test_ctrl_c_ends_with_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_loaded: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "launch", interrupt)
    assert run("demo", capsys=capsys) == (130, "", "farflung: stopped\n")
