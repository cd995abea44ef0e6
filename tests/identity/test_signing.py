"""Signatures under records."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.errors import PeerFault
from farflung.identity.keys import NodeKey, key_from_bytes, new_key
from farflung.identity.signing import check_signer, sign, signer_of
from farflung.wire.manifest import Chunk, Manifest, ManifestFile, policy_digest

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
KEY = key_from_bytes(b"\x01" * 32)


class Sealed(msgspec.Struct, frozen=True):
    signature: str = ""

    def digest(self) -> str:
        return "acfce2494c2ddf574c788d7f57033a0e3adb038b3dc92b2205488b43e192e65d"


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


def test_the_signature_is_the_one_that_a_wallet_makes() -> None:
    """By eth-account 0.14 with `encode_typed_data`, of a record with this digest, with this key."""
    signed = sign(Sealed(), KEY)
    assert signed.signature == (
        "be69732f7141a217ef8bb910351e19a401244a46556e336273cd3c1deea18664"
        "3628880a310e10ab2b458fff9b30df958720e7e81cce25500fa8581324c9b0231c"
    )


def test_identities_leave_the_limit_of_recursion_alone() -> None:
    """eth-account raises it a hundredfold, and then nested JSON from a stranger overflows the stack."""
    code = (
        "import sys; before = sys.getrecursionlimit(); import farflung.identity.signing; "
        "assert sys.getrecursionlimit() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_key_made_from_the_same_bytes_is_the_same() -> None:
    assert isinstance(KEY, NodeKey)
    assert KEY.address == "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1"
