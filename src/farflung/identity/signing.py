"""Signatures under records: EIP-712 over the record's own digest, so that wallets and contracts can check them.

    typed data   domain {name "farflung", version "1"}, Record {bytes32 digest}
    signature    65 bytes r | s | v in hex

The digest covers the record's domain tag and every field except `signature` (`wire.canonical`), so a signature fits one
record of one kind. Which signer is allowed to sign what is the caller's question.
"""

import re
from typing import Protocol, TypeVar

import msgspec
from coincurve import PublicKey

from farflung.errors import PeerFault
from farflung.identity.ethereum import address_of, signed_hash
from farflung.identity.keys import NodeKey
from farflung.wire.canonical import Record

BAD_SIGNATURE = "bad_signature"

_SIGNATURE = re.compile(r"[0-9a-f]{130}")
_HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0


class Signed(Protocol):
    """A record with a signature field."""

    @property
    def signature(self) -> str: ...

    def digest(self) -> str: ...


Signable = TypeVar("Signable", bound=Record)


def sign(record: Signable, key: NodeKey) -> Signable:
    """The record with `key`'s signature in place of any that it had."""
    signature = key.sign(signed_hash(bytes.fromhex(record.digest())))
    return msgspec.structs.replace(record, signature=signature.hex())


def signer_of(record: Signed) -> str:
    """Address of whoever signed it.

    Raises:
        PeerFault: there is no signature, or none that is one. Of the two forms that every signature has only the one
            with low s is taken (EIP-2), so that nobody can make a second one from a first.
    """
    if not _SIGNATURE.fullmatch(record.signature):
        raise PeerFault(BAD_SIGNATURE, f"{type(record).__name__} has no signature of 65 bytes in hex")
    raw = bytes.fromhex(record.signature)
    if int.from_bytes(raw[32:64], "big") > _HALF_ORDER or raw[64] not in (27, 28):
        raise PeerFault(BAD_SIGNATURE, f"{type(record).__name__}: the signature is not in its canonical form")
    try:
        signer = PublicKey.from_signature_and_message(
            raw[:64] + bytes([raw[64] - 27]), signed_hash(bytes.fromhex(record.digest())), hasher=None
        )
    except ValueError as error:
        raise PeerFault(BAD_SIGNATURE, f"{type(record).__name__}: no key gives this signature") from error
    return address_of(signer.format(compressed=False))


def check_signer(record: Signed, address: str) -> None:
    """Raises PeerFault unless `address`, in whatever case, signed the record."""
    signer = signer_of(record)
    if signer.lower() != address.lower():
        raise PeerFault(BAD_SIGNATURE, f"{type(record).__name__} is signed by {signer}, not by {address}")
