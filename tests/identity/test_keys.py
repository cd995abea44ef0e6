"""Keys in files."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from farflung.errors import UserError
from farflung.identity.keys import make_key, new_key, read_key


def test_a_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "trainer"
    made = make_key(path)
    assert make_key(path).address == read_key(path).address == made.address
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["trainer"]


def test_threads_that_make_it_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        addresses = {key.address for key in threads.map(make_key, [tmp_path / "key"] * 32)}
    assert len(addresses) == 1


def test_a_key_is_never_shown() -> None:
    key = new_key()
    assert key.private.to_hex() not in f"{key!r} {key}"


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    make_key(path)
    path.chmod(0o640)
    with pytest.raises(UserError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"00" * 32, b"ff" * 32, b"ab" * 33, b"\xff" * 64, b"1" * 100_000])
def test_what_is_no_key_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UserError, match="key"):
        read_key(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_key(tmp_path / "nothing")
