"""Objects by key: immutable, whole or absent.

A store does not know what its bytes mean. Keys are `/`-separated names of `[A-Za-z0-9._-]`, never paths.
"""

from pathlib import Path
from typing import Protocol


class Store(Protocol):
    """Blocking calls; services run them in a thread when it matters."""

    def put(self, key: str, data: bytes | bytearray) -> None:
        """Make `data` visible under `key`, whole or not at all; the same bytes again are a no-op.

        Raises:
            OurFault: the key holds other bytes (keys are immutable), or the disk is full.
            Transient: the store cannot be reached.
        """
        ...

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """Raises `KeyError` when absent, `PeerFault` when larger than `max_bytes`, `Transient` when unreachable."""
        ...

    def size(self, key: str) -> int | None:
        """Bytes, or None when absent."""
        ...

    def local_path(self, key: str) -> Path | None:
        """Where an object lies if it is there and is a file of this machine; None for a store that has no files."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """Keys under a prefix, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Absent keys are not an error."""
        ...
