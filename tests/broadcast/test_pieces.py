"""Chunks are cut out of files that are in memory, and never all of them at once."""

import pytest

from farflung.broadcast.pieces import Pieces
from farflung.broadcast.publish import cut_files
from farflung.sharding.plan import cut
from farflung.wire.canonical import sha256_hex

DATA = {"a": b"0123456789", "b": b"xyz"}


def pieces() -> Pieces:
    return Pieces.of([cut(name, data, 4) for name, data in DATA.items()], DATA)


def test_every_chunk_is_there_under_its_hash() -> None:
    assert {digest: sha256_hex(data) for digest, data in pieces().items()} == {digest: digest for digest in pieces()}
    assert sorted(pieces().values()) == [b"0123", b"4567", b"89", b"xyz"]


def test_nothing_is_copied_before_it_is_looked_at() -> None:
    held = {id(whole) for whole, _, _ in pieces().places.values()}
    assert held == {id(data) for data in DATA.values()}


def test_those_of_two_versions_are_together_and_a_common_one_counts_once() -> None:
    other = cut_files({"c": b"0123qq"}, 4).chunks
    assert sorted(pieces().with_those_of(other).values()) == [b"0123", b"4567", b"89", b"qq", b"xyz"]


def test_a_hash_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        pieces()[sha256_hex(b"nobody has this")]
