"""Which token a role shows, and what a person reads who has none."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from farflung.api.tokens import VARIABLE, make_tokens
from farflung.cli.config import RunConfig
from farflung.cli.launch import folder_of, role_specs
from farflung.cli.roles import _token
from farflung.errors import UserError
from farflung.wire.node import Role


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.delenv(VARIABLE, raising=False)
    return RunConfig.model_validate({"run": {"dir": tmp_path, "name": "r"}})


def told(command: str, **changes: Any) -> Namespace:
    return Namespace(**({"command": command, "token_file": None, "config": "run.toml"} | changes))


@pytest.fixture
def tokens(config: RunConfig) -> Mapping[Role, str]:
    return make_tokens(folder_of(config).tokens)


def test_a_file_wins_over_the_variable_and_that_over_the_runs_folder(
    config: RunConfig, tokens: Mapping[Role, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _token(told("validator"), config) == tokens[Role.VALIDATOR]
    assert _token(told("trainer"), config) == tokens[Role.TRAINER]
    monkeypatch.setenv(VARIABLE, "v" * 40)
    assert _token(told("validator"), config) == "v" * 40
    (tmp_path / "token").write_text("f" * 40 + "\n")
    assert _token(told("validator", token_file=str(tmp_path / "token")), config) == "f" * 40


def test_a_worker_shows_none_and_without_a_config_no_folder_is_guessed(
    config: RunConfig, tokens: Mapping[Role, str]
) -> None:
    assert _token(told("worker"), config) is None
    assert _token(told("validator", config=None), config) is None


def test_a_variable_that_holds_no_token_is_said(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "oops")
    with pytest.raises(UserError, match="FARFLUNG_TOKEN does not hold a token"):
        _token(told("trainer"), config)


def test_supervised_roles_are_told_the_file_and_never_the_secret(config: RunConfig, tokens: Mapping[Role, str]) -> None:
    folder = folder_of(config)
    for spec in role_specs(config, folder):
        has_token = str(folder.tokens / spec.role.value) in spec.command
        assert has_token is (spec.role in tokens)
        assert not set(tokens.values()) & {*spec.command, *spec.environment.values()}
