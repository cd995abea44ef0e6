"""Rules that many records share, for their `__post_init__`: `ValueError` here is `PeerFault` in `Record.from_bytes`."""

import math
import re
from collections.abc import Iterable

from farflung.wire.limits import MAX_NAME_BYTES

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_INT64_END = 2**63


def require_digests(**fields: str) -> None:
    """Each is 64 lower-case hex digits: one spelling, so that equal digests are equal strings."""
    for name, value in fields.items():
        if not _DIGEST.fullmatch(value):
            raise ValueError(f"{name} is {value[:80]!r}: it must be 64 lower-case hex digits")


def require_addresses(**fields: str) -> None:
    """Each is `0x` and 40 hex digits: who holds a key (EIP-55 spelling is not asked for)."""
    for name, value in fields.items():
        if not _ADDRESS.fullmatch(value):
            raise ValueError(f"{name} is {value[:80]!r}: it must be 0x and 40 hex digits")


def require_names(**fields: str) -> None:
    """Each has at least one byte, at most `MAX_NAME_BYTES`, and only printable characters."""
    for name, value in fields.items():
        if not value or not value.isprintable() or len(value.encode()) > MAX_NAME_BYTES:
            raise ValueError(f"{name} is {value[:80]!r}: it must have 1 to {MAX_NAME_BYTES} printable bytes")


def require_counts(*, at_least: int = 0, **fields: int) -> None:
    """Each lies in [at_least, 2**63), so that every language and database can hold it."""
    for name, value in fields.items():
        if not at_least <= value < _INT64_END:
            raise ValueError(f"{name} is {value}: it must be at least {at_least} and below 2**63")


def require_finite(name: str, values: Iterable[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"{name} has {value}: it must be finite")
