"""Secrets of a run: made once, for their owner's eyes, told apart from everything else."""

import os
from pathlib import Path

import pytest

from farflung.api.tokens import check_token, is_token_of, make_tokens, read_token
from farflung.errors import UserError
from farflung.wire.node import Role


def test_tokens_are_made_once_and_their_files_are_their_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "tokens"
    before = os.umask(0)
    try:
        tokens = make_tokens(folder)
    finally:
        os.umask(before)
    assert make_tokens(folder) == tokens
    assert tokens.keys() == {Role.TRAINER, Role.VALIDATOR}
    assert len(set(tokens.values())) == 2
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "trainer": 0o600,
        "validator": 0o600,
    }
    assert read_token(folder / "validator") == tokens[Role.VALIDATOR]


def test_only_a_roles_own_token_is_its_token() -> None:
    tokens = {Role.TRAINER: "t" * 32, Role.VALIDATOR: "v" * 32}
    assert is_token_of(Role.TRAINER, tokens, "t" * 32)
    for shown in (None, "", "v" * 32, "t" * 31, "t" * 33, "\udcff"):
        assert not is_token_of(Role.TRAINER, tokens, shown)
    assert not is_token_of(Role.TRAINER, {}, "")
    assert not is_token_of(Role.TRAINER, {}, None)


@pytest.mark.parametrize("text", ["", "short", "with space " * 4, "x" * 257, "ä" * 40])
def test_a_file_without_a_token_is_said_and_what_it_holds_is_not(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(UserError, match="does not hold a token") as caught:
        read_token(tmp_path / "token")
    assert not text or text not in str(caught.value)
    with pytest.raises(UserError, match="No such file"):
        read_token(tmp_path / "absent")


def test_a_token_in_a_variable_is_checked_too() -> None:
    assert check_token("a" * 43, "FARFLUNG_TOKEN") == "a" * 43
    with pytest.raises(UserError, match="FARFLUNG_TOKEN does not hold a token"):
        check_token("a" * 3, "FARFLUNG_TOKEN")
