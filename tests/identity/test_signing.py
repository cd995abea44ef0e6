"""Signatures under records."""

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.errors import PeerFault
from farflung.identity.keys import NodeKey, key_from_bytes, new_key
from farflung.identity.signing import check_signer, sign, signer_of
from farflung.wire.manifest import Chunk, Manifest, ManifestFile, policy_digest

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
KEY = key_from_bytes(b"\x01" * 32)


def manifest() -> Manifest:
    digest = "ab" * 32
    files = (ManifestFile(name="w", num_bytes=3, sha256=digest, chunks=(Chunk(index=0, num_bytes=3, sha256=digest),)),)
    return Manifest(
        pool_digest=digest, policy_version=1, policy_digest=policy_digest(files), optimizer_step=1, files=files,
        tensors=(), published_at_ms=5, expires_at_ms=6,
    )  # fmt: skip


def test_the_signer_is_found() -> None:
    signed = sign(manifest(), KEY)
    assert signer_of(signed) == KEY.address
    check_signer(signed, KEY.address)
    assert sign(signed, KEY) == signed
    assert replace(signed, signature="") == manifest()


def test_another_signer_is_refused() -> None:
    other = new_key()
    with pytest.raises(PeerFault, match="signed by"):
        check_signer(sign(manifest(), other), KEY.address)


@pytest.mark.parametrize("changes", [{"policy_version": 2}, {"expires_at_ms": 7}, {"pool_digest": "cd" * 32}])
def test_a_changed_record_is_not_the_signers(changes: dict[str, object]) -> None:
    with pytest.raises(PeerFault):
        check_signer(replace(sign(manifest(), KEY), **changes), KEY.address)


@given(st.integers(0, 129), st.sampled_from("0123456789abcdef"))
def test_a_changed_signature_is_not_the_signers(place: int, digit: str) -> None:
    signed = sign(manifest(), KEY)
    text = signed.signature[:place] + digit + signed.signature[place + 1 :]
    if text == signed.signature:
        return
    with pytest.raises(PeerFault):
        check_signer(replace(signed, signature=text), KEY.address)


@given(st.text(max_size=140))
def test_noise_is_no_signature(text: str) -> None:
    with pytest.raises(PeerFault):
        signer_of(replace(manifest(), signature=text))


def test_the_twin_of_a_signature_is_refused() -> None:
    """Whoever sees (r, s, v) can make (r, n - s, 55 - v), which most libraries take."""
    signed = sign(manifest(), KEY)
    raw = bytes.fromhex(signed.signature)
    twin = raw[:32] + (ORDER - int.from_bytes(raw[32:64], "big")).to_bytes(32, "big") + bytes([55 - raw[64]])
    with pytest.raises(PeerFault, match="canonical form"):
        signer_of(replace(signed, signature=twin.hex()))


def test_a_wallet_gets_the_same_signer() -> None:
    signed = sign(manifest(), KEY)
    typed = encode_typed_data(
        {"name": "farflung", "version": "1"},
        {"Record": [{"name": "digest", "type": "bytes32"}]},
        {"digest": bytes.fromhex(signed.digest())},
    )
    assert Account.recover_message(typed, signature=signed.signature) == KEY.address


def test_a_key_made_from_the_same_bytes_is_the_same() -> None:
    assert isinstance(KEY, NodeKey)
    assert KEY.address == "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1"
