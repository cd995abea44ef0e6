"""Manifests from anybody: what is believed, and what each lie is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.broadcast.publish import prepare
from farflung.broadcast.trust import CLOCK_SKEW_MS, Guard, ManifestTrust
from farflung.errors import PeerFault
from farflung.identity.keys import key_from_bytes, new_key
from farflung.identity.signing import sign
from farflung.wire.manifest import Manifest

KEY = key_from_bytes(b"\x05" * 32)
POOL = "ab" * 32
NOW_MS = 1_000_000


def made(version: int, previous: Manifest | None = None, *, pool: str = POOL, content: bytes = b"") -> Manifest:
    manifest = prepare(
        {"w": content or bytes([version])}, tensors=(), pool_digest=pool, policy_version=version,
        optimizer_step=version, published_at_ms=NOW_MS - 1000, expires_at_ms=NOW_MS + 1000,
        previous_digest="" if previous is None else previous.digest(),
    ).manifest  # fmt: skip
    return sign(manifest, KEY)


def believer() -> tuple[ManifestTrust, Manifest, Manifest]:
    """With two versions seen."""
    trust = ManifestTrust(trainer=KEY.address)
    first = made(0)
    second = made(1, first)
    assert trust.check(first, NOW_MS)
    assert trust.check(second, NOW_MS)
    return trust, first, second


def test_a_chain_is_believed_and_what_is_known_is_not_new() -> None:
    trust, first, second = believer()
    assert not trust.check(second, NOW_MS)
    assert not trust.check(first, NOW_MS)
    assert trust.check(made(2, second), NOW_MS)
    assert trust.newest_version == 2


def test_versions_may_be_missed() -> None:
    trust, _, _ = believer()
    assert trust.check(made(9, made(8)), NOW_MS)


@pytest.mark.parametrize(
    ("reason", "manifest"),
    [
        ("bad_signature", sign(replace(made(2)), new_key())),
        ("bad_signature", replace(made(2), optimizer_step=7)),
        ("bad_signature", replace(made(2), signature="")),
        ("wrong_pool", made(2, pool="cd" * 32)),
        ("split_view", made(2, made(1, content=b"other"))),
        ("split_view", made(1, made(0), content=b"other")),
        ("malformed_record", sign(replace(made(2), policy_digest="ef" * 32), KEY)),
    ],
)
def test_every_lie_has_a_name_and_changes_nothing(reason: str, manifest: Manifest) -> None:
    trust, _, second = believer()
    with pytest.raises(PeerFault) as caught:
        trust.check(manifest, NOW_MS)
    assert caught.value.reason == reason
    assert trust.newest_version == 1
    assert trust.check(made(2, second), NOW_MS)


def test_an_old_version_that_was_never_seen_is_a_rollback() -> None:
    trust = ManifestTrust(trainer=KEY.address)
    trust.check(made(5, made(4)), NOW_MS)
    with pytest.raises(PeerFault) as caught:
        trust.check(made(3, made(2)), NOW_MS)
    assert caught.value.reason == "rollback"


def test_a_frozen_view_expires() -> None:
    """R2: a server that goes on showing an old version is found out when that expires."""
    trust, _, second = believer()
    assert not trust.check(second, NOW_MS + 1000 + CLOCK_SKEW_MS)
    with pytest.raises(PeerFault) as caught:
        trust.check(second, NOW_MS + 1001 + CLOCK_SKEW_MS)
    assert caught.value.reason == "expired"


def test_without_an_address_the_first_signer_is_believed_and_nobody_else() -> None:
    trust = ManifestTrust()
    first = made(0)
    assert trust.check(first, NOW_MS)
    assert trust.trainer == KEY.address
    with pytest.raises(PeerFault):
        trust.check(sign(made(1, first), new_key()), NOW_MS)


def guarded() -> tuple[Guard, list[str], Manifest]:
    """With two versions admitted, and what was reported since."""
    reported: list[str] = []
    guard = Guard(ManifestTrust(trainer=KEY.address), reported.append)
    first = made(0)
    second = made(1, first)
    assert guard.admits(first, NOW_MS)
    assert guard.admits(second, NOW_MS)
    assert set(reported) == {""}
    reported.clear()
    return guard, reported, second


@pytest.mark.parametrize(
    ("reason", "manifest"),
    [
        ("bad_signature", sign(made(2), new_key())),
        ("split_view", made(1, made(0), content=b"other")),
        ("split_view", made(2, made(1, content=b"other"))),
    ],
)
def test_r5_what_is_not_to_be_believed_is_reported_and_turned_away(reason: str, manifest: Manifest) -> None:
    guard, reported, second = guarded()
    assert not guard.admits(manifest, NOW_MS)
    assert reported == [reason]
    assert guard.admits(made(2, second), NOW_MS)
    assert reported[-1] == ""


def test_r2_an_old_version_given_as_the_newest_is_a_rollback() -> None:
    guard, reported, _ = guarded()
    ninth = made(9, made(8))
    assert guard.admits(ninth, NOW_MS)
    assert not guard.admits(made(5, made(4)), NOW_MS)
    assert reported[-1] == "rollback"


def test_r2_a_frozen_version_is_reported_and_still_worked_with() -> None:
    """Or a run that was stopped for days would wait for itself."""
    guard, reported, second = guarded()
    assert guard.admits(second, NOW_MS + 1001 + CLOCK_SKEW_MS)
    assert reported[-1] == "expired"


def test_a_version_that_was_asked_for_may_be_old_but_must_be_that_one() -> None:
    guard, reported, second = guarded()
    third = made(2, second)
    fourth = made(3, third)
    assert guard.admits(fourth, NOW_MS)
    assert guard.admits_named(third, 2)
    assert guard.admits_named(second, 1)
    assert not guard.admits_named(second, 2)
    assert reported[-1] == "rollback"
    assert not guard.admits_named(made(2, second, content=b"other"), 2)
    assert reported[-1] == "split_view"
    assert not guard.admits_named(sign(third, new_key()), 2)
    assert reported[-1] == "bad_signature"


def test_r5_a_manifest_that_comes_after_its_successor_must_be_what_that_follows() -> None:
    guard, reported, second = guarded()
    third = made(2, second)
    assert guard.admits(made(3, third), NOW_MS)
    assert not guard.admits_named(made(2, second, content=b"other"), 2)
    assert reported == ["", "split_view"]


@given(st.data())
def test_a_flipped_bit_anywhere_in_a_manifest_is_refused(data: st.DataObject) -> None:
    guard, reported, second = guarded()
    raw = bytearray(made(2, second).to_bytes())
    place = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[place // 8] ^= 1 << place % 8
    try:
        manifest = Manifest.from_bytes(bytes(raw))
    except PeerFault:
        return
    assert not guard.admits(manifest, NOW_MS)
    assert reported[-1] in {"bad_signature", "malformed_record", "split_view", "wrong_pool", "rollback"}
