"""`farflung relay`, `run --relays` and what the status tells of relays."""

from pathlib import Path

import pytest
from rich.console import Console

from farflung.cli import main
from farflung.cli.config import RunConfig
from farflung.cli.launch import role_specs
from farflung.cli.run_folder import RunFolder
from farflung.cli.status import render_status
from farflung.config.load import load
from farflung.wire.node import PoolStatus, Role
from farflung.wire.relay import RelayStatus


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give --coordinator URL or --upstream URL"),
        (["--upstream", "relay-1"], "'relay-1' is no address to fetch from"),
        (["--upstream", "http://a:1,ftp://b:2"], "'ftp://b:2' is no address to fetch from"),
        (["--coordinator", "10.0.0.7:7400"], "'10.0.0.7:7400' is no address to fetch from"),
        (["--coordinator", "http://127.0.0.1:1", "--relay.host", "0.0.0.0"], "--relay.public_url"),
        (["--coordinator", "http://127.0.0.1:1", "--run.ca_file", "absent.pem"], "run.ca_file absent.pem"),
        (["--upstream", "http://a:1", "--relay.tls_key", "x.key"], "go together"),
        (["--upstream", "http://a:1", "--relay.upload_bytes_per_s", "-1"], "relay.upload_bytes_per_s"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["relay", "--relay.port", "0", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_with_relays_starts_them_before_its_workers_and_lets_them_register(tmp_path: Path) -> None:
    config = load(RunConfig, None, ["--supervisor.num_relays=2", "--coordinator.port=7400"]).config
    specs = role_specs(config, RunFolder(root=tmp_path / "run"))
    assert [spec.name for spec in specs[:5]] == ["coordinator", "trainer", "relay-1", "relay-2", "worker-1"]
    coordinator, _, first, second = specs[:4]
    assert "--coordinator.private_relays=true" in coordinator.command
    assert first.role is Role.RELAY
    assert {"--coordinator", "http://127.0.0.1:7400", "--relay.port=0", "--relay.node=relay-1"} <= set(first.command)
    assert f"--relay.folder={tmp_path}/run/relay-2" in second.command
    alone = role_specs(load(RunConfig, None, []).config, RunFolder(root=tmp_path / "run"))
    assert not any("private_relays" in word for spec in alone for word in spec.command)


def test_a_local_run_has_no_use_for_relays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["run", "demo", "--local", "--relays", "2", "--dry-run"]) == 2
    assert "supervisor.num_relays is 2 in a local run" in capsys.readouterr().err
    assert main.main(["run", "demo", "--relays", "65", "--dry-run"]) == 2
    assert "supervisor.num_relays" in capsys.readouterr().err


def test_with_a_certificate_the_roles_of_a_run_speak_https(tmp_path: Path) -> None:
    settings = ["--coordinator.tls_certificate=a.pem", "--coordinator.tls_key=a.key", "--coordinator.port=7400"]
    specs = role_specs(load(RunConfig, None, settings).config, RunFolder(root=tmp_path / "run"))
    assert all("https://127.0.0.1:7400" in spec.command for spec in specs if spec.role is not Role.COORDINATOR)


def shown(status: PoolStatus) -> str:
    console = Console(width=160, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(render_status(status, 10_000))
    return capture.get()


def test_the_status_says_who_is_listed_who_is_not_and_why() -> None:
    pool = PoolStatus(
        pool="p", policy_version=7, nodes=(), slots={}, drops={}, tokens_generated=0, tokens_accepted=0,
        outstanding_groups=0, is_finished=False,
    )  # fmt: skip
    assert "relay" not in shown(pool)
    first, liar = "http://198.51.100.4:7500", "http://198.51.100.5:7500"
    relays = (
        RelayStatus(url=first, relay="r1", parent="", policy_version=7, last_seen_ms=9_000),
        RelayStatus(url="http://198.51.100.6:7500", relay="r2", parent=first, policy_version=6, last_seen_ms=8_000),
        RelayStatus(url="http://cache.example", relay="", parent="", policy_version=7, last_seen_ms=0),
        RelayStatus(
            url=liar, relay="mallory\x1b[31m", parent="", policy_version=7, last_seen_ms=9_000,
            problem="lied: chunk_digest: it sent other bytes", num_accusers=2,
        ),
    )  # fmt: skip
    lines = shown(PoolStatus(**{name: getattr(pool, name) for name in pool.__struct_fields__} | {"relays": relays}))
    (one,) = [line for line in lines.splitlines() if f"{first} (r1)" in line]
    assert one.split()[2:] == ["coordinator", "listed", "7", "1", "s", "ago"]
    assert f"{first}" in next(line for line in lines.splitlines() if "(r2)" in line)
    told = next(line for line in lines.splitlines() if liar in line)
    assert "dropped: lied: chunk_digest: it sent other bytes; 2 say that it lied" in told
    assert "\x1b" not in lines
