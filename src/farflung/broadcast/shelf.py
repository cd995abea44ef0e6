"""Chunks in a folder, by hash: whole or absent, and never more than a disk's share.

    folder/ab/abcdef...         one file each; a name is believed after its content was hashed once by this process

A chunk goes when room is needed and no kept version has it, the one used longest ago first. Blocking; the relay calls
it in threads. Does not know versions: the caller says which chunks are needed.
"""

import os
import secrets
import threading
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from farflung.errors import OurFault
from farflung.wire.canonical import sha256_hex

_DRAFT = ".draft-"


class Shelf:
    """Chunks of one relay, or of one worker."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Raises OurFault: the folder cannot be used."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._sizes: dict[str, int] = {}  # the one used longest ago first
        self._hashed: set[str] = set()
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._find()
        except OSError as error:
            raise OurFault(f"the folder {folder} of chunks cannot be used: {error.strerror or error}") from error

    @property
    def num_bytes(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def __contains__(self, sha256: object) -> bool:
        with self._lock:
            return sha256 in self._sizes

    def path(self, sha256: str) -> Path | None:
        """The file of a chunk whose content is right; None if there is none."""
        with self._lock:
            if sha256 not in self._sizes:
                return None
            self._sizes[sha256] = self._sizes.pop(sha256)
            is_hashed = sha256 in self._hashed
        path = self._place(sha256)
        if is_hashed or self._is_right(path, sha256):
            return path
        self._forget(sha256)
        return None

    def put(self, sha256: str, data: bytes | bytearray, needed: Container[str]) -> None:
        """Keep a chunk whose hash the caller has checked.

        Args:
            needed: hashes that must not make room for it.

        Raises:
            OurFault: it cannot be written.
        """
        path = self._place(sha256)
        draft = path.with_name(f"{_DRAFT}{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(exist_ok=True)
            draft.write_bytes(data)
            os.replace(draft, path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise OurFault(f"chunk {path} cannot be written: {error.strerror or error}") from error
        with self._lock:
            self._sizes[sha256] = len(data)
            self._hashed.add(sha256)
        self._make_room(sha256, needed)

    def _make_room(self, newest: str, needed: Container[str]) -> None:
        with self._lock:
            excess = sum(self._sizes.values()) - self._max_bytes
            going = []
            for sha256, size in self._sizes.items():
                if excess <= 0:
                    break
                if sha256 != newest and sha256 not in needed:
                    going.append(sha256)
                    excess -= size
        for sha256 in going:
            self._forget(sha256)

    def _forget(self, sha256: str) -> None:
        with self._lock:
            self._sizes.pop(sha256, None)
            self._hashed.discard(sha256)
        self._place(sha256).unlink(missing_ok=True)

    def _is_right(self, path: Path, sha256: str) -> bool:
        """Whether a file that another process wrote holds what its name says."""
        try:
            is_right = sha256_hex(path.read_bytes()) == sha256
        except OSError:
            return False
        if is_right:
            with self._lock:
                self._hashed.add(sha256)
        return is_right

    def _find(self) -> None:
        found = []
        for path in self._folder.glob("??/*"):
            if path.name.startswith(_DRAFT):
                path.unlink()
            elif len(path.name) == 64 and path.parent.name == path.name[:2]:
                stat = path.stat()
                found.append((stat.st_mtime_ns, path.name, stat.st_size))
        self._sizes = {name: size for _, name, size in sorted(found)}

    def _place(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256
