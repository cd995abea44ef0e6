"""Epoch secrets and the draw seeds that follow from them.

    commitment = digest("farflung/epoch-secret/1", secret)
    draw seed  = HMAC-SHA256(secret, fields("farflung/draw-seed/1", policy digest, slot, node, attempt))

A secret is drawn by its owner, committed to before its epoch and revealed after it, so that anyone can recompute every
seed of the epoch. This module does not draw, store or publish secrets.
"""

import hmac

from farflung.wire.canonical import tagged_digest

SECRET_BYTES = 32
"""Length of an epoch secret. A shorter one could be guessed from its commitment before the reveal."""


def commit_secret(secret: bytes) -> str:
    """Hex commitment to an epoch secret.

    Raises:
        ValueError: the secret is not `SECRET_BYTES` long.
    """
    _check_secret(secret)
    return tagged_digest("farflung/epoch-secret/1", secret)


def check_reveal(commitment: str, secret: bytes) -> bool:
    """Whether `secret` is what `commitment` promised; False for a secret of the wrong length."""
    return len(secret) == SECRET_BYTES and commit_secret(secret) == commitment


def draw_seed(secret: bytes, policy_digest: str, slot: int, node: str, attempt: int) -> bytes:
    """The 32 bytes that every draw of one lease comes from.

    Only the lease discloses them, so a node cannot learn its draws before it is bound to the slot; another node or
    another attempt has other draws.

    Raises:
        ValueError: the secret is not `SECRET_BYTES` long, or `slot` or `attempt` is negative.
    """
    _check_secret(secret)
    if slot < 0 or attempt < 0:
        raise ValueError(f"slot {slot}, attempt {attempt}: neither may be negative")
    return keyed_hash(secret, "farflung/draw-seed/1", policy_digest, slot, node, attempt)


def keyed_hash(key: bytes, domain: str, *fields: str | int) -> bytes:
    """HMAC-SHA256 over domain and fields, each with its kind and its length in front; 32 bytes.

    No two lists of fields share a message: neither ("a", "bc") and ("ab", "c") nor 1 and "1".
    """
    return hmac.digest(key, b"".join(_framed(field) for field in (domain, *fields)), "sha256")


def _framed(field: str | int) -> bytes:
    kind, body = (b"s", field.encode()) if isinstance(field, str) else (b"i", str(field).encode())
    return kind + len(body).to_bytes(8, "big") + body


def _check_secret(secret: bytes) -> None:
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"an epoch secret of {len(secret)} bytes: it must have {SECRET_BYTES}")
