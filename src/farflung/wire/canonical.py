"""Canonical bytes and domain-separated digests of records.

A signed record has exactly one byte form: RFC 8785 JSON in which integers from 2**53 on are decimal strings (JSON
numbers lose them). A digest is `sha256(len(tag) | tag | len(bytes) | bytes)` with 8-byte big-endian lengths, so no
two records of different kinds, and no two splits of the same bytes, share a digest.

This module does not know what any record means.
"""

import hashlib
from typing import Any, ClassVar, Self

import msgspec
import rfc8785

from farflung.errors import PeerFault

MAX_EXACT_JSON_INT = 2**53 - 1
"""Largest magnitude that a JSON number carries exactly (RFC 7493 section 2.2). Changing it changes digests."""

MALFORMED_RECORD = "malformed_record"


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen value that crosses a process boundary.

    Subclasses name their `DOMAIN`; a field called `signature` is left out of the digest.
    """

    DOMAIN: ClassVar[str] = ""
    MAX_BYTES: ClassVar[int] = 1 << 20

    def to_bytes(self) -> bytes:
        """The canonical bytes, signature included."""
        return canonical_json(msgspec.to_builtins(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse canonical bytes.

        Raises:
            PeerFault: longer than `MAX_BYTES`, not this record, or not in canonical form.
        """
        if len(data) > cls.MAX_BYTES:
            raise PeerFault(MALFORMED_RECORD, f"{cls.__name__} of {len(data)} bytes, at most {cls.MAX_BYTES} allowed")
        try:
            record = msgspec.json.decode(data, type=cls, strict=False)
            is_canonical = record.to_bytes() == data
        except (msgspec.DecodeError, rfc8785.CanonicalizationError, ValueError, RecursionError) as error:
            raise PeerFault(MALFORMED_RECORD, f"{cls.__name__}: {error}") from error
        if not is_canonical:
            raise PeerFault(MALFORMED_RECORD, f"{cls.__name__}: bytes are not in canonical form")
        return record

    def digest(self) -> str:
        """Hex sha256 under this record's domain, over every field except its own `signature`."""
        assert self.DOMAIN, f"{type(self).__name__} has no domain: it is never signed or named by its digest"
        body = msgspec.to_builtins(self)
        body.pop("signature", None)
        return tagged_digest(self.DOMAIN, canonical_json(body))


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes of plain JSON types, with integers from 2**53 on as decimal strings."""
    return rfc8785.dumps(_with_exact_ints(value))


def tagged_digest(domain: str, *parts: bytes) -> str:
    """Hex sha256 over length-prefixed `domain` and `parts`."""
    hasher = hashlib.sha256()
    for part in (domain.encode(), *parts):
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return hasher.hexdigest()


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """Plain content address of a file or chunk (what `sha256sum` prints)."""
    return hashlib.sha256(data).hexdigest()


def _with_exact_ints(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) > MAX_EXACT_JSON_INT:
        return str(value)
    if isinstance(value, dict):
        return {str(key): _with_exact_ints(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_exact_ints(item) for item in value]
    return value
