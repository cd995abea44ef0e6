"""Commitments bind, draw seeds depend on every field and on nothing else."""

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.slots.seeds import check_reveal, commit_secret, draw_seed, keyed_hash

SECRET = bytes(range(32))
POLICY = "ab" * 32


def seed(**changes: Any) -> bytes:
    return draw_seed(
        **{"secret": SECRET, "policy_digest": POLICY, "slot": 3, "node": "worker-1", "attempt": 0, **changes}
    )


def test_the_golden_commitment_and_seed() -> None:
    assert commit_secret(SECRET) == "a1d9995262538f6cdaad405b0c4754b1a884e34e6184d163b286b7298997855a"
    assert seed().hex() == "cdf12502077240244301f81b988e21f0294485736fc71d049476d9870073c4e1"


def test_a_seed_is_the_hmac_over_fields_with_kind_and_length() -> None:
    fields = [(b"s", b"farflung/draw-seed/1"), (b"s", POLICY.encode()), (b"i", b"3"), (b"s", b"worker-1"), (b"i", b"0")]
    message = b"".join(kind + len(body).to_bytes(8, "big") + body for kind, body in fields)
    assert seed() == hmac.new(SECRET, message, hashlib.sha256).digest()


def test_a_reveal_is_checked_against_its_commitment() -> None:
    commitment = commit_secret(SECRET)
    assert check_reveal(commitment, SECRET)
    assert not check_reveal(commitment, SECRET[::-1])
    assert not check_reveal(commitment, SECRET[:-1])
    assert not check_reveal(commitment, b"")
    assert not check_reveal("", SECRET)


def test_every_field_changes_the_seed() -> None:
    changes: list[dict[str, Any]] = [{}, {"secret": bytes(32)}, {"policy_digest": "ac" * 32}]
    changes += [{"slot": 4}, {"node": "worker-2"}, {"attempt": 1}, {"slot": 0, "attempt": 3}]
    assert len({seed(**change) for change in changes}) == len(changes)
    assert all(len(seed(**change)) == 32 for change in changes)


Fields = list[str | int]
fields = st.lists(st.integers(0, 30) | st.text("01s:", max_size=3), max_size=4)


@given(fields, fields)
def test_two_lists_of_fields_share_a_hash_only_if_they_are_equal(one: Fields, other: Fields) -> None:
    assert (keyed_hash(SECRET, "d", *one) == keyed_hash(SECRET, "d", *other)) == (one == other)


def test_a_number_is_not_its_text_and_a_field_is_not_the_domain() -> None:
    assert keyed_hash(SECRET, "d", 1) != keyed_hash(SECRET, "d", "1")
    assert keyed_hash(SECRET, "d", "a") != keyed_hash(SECRET, "da")


@pytest.mark.parametrize("change", [{"slot": -1}, {"attempt": -1}, {"secret": b"short"}, {"secret": b""}])
def test_a_seed_of_nothing_real_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        seed(**change)
    if "secret" in change:
        with pytest.raises(ValueError, match="must have 32"):
            commit_secret(change["secret"])
