"""A store in a local folder, in memory, or in S3, Google Cloud Storage or Azure, behind the one interface of `base`.

Objects are created under a condition ("only if absent") that the back end itself enforces, so concurrent writers agree
on one content. A local file is written aside and linked into place, so half of it is never visible, and synced to disk
before `put` returns, so that what was acknowledged survives a power cut. This module does not know what its bytes mean.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, MemoryStore, from_url

from farflung.errors import OurFault, PeerFault, Transient, UserError
from farflung.store.keys import check_key
from farflung.wire.verdict import RejectReason

Result = TypeVar("Result")

CLOUD_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")
_STAGED = re.compile(r".+#\d+")
"""A local file that is not linked into place yet; no key has a "#"."""
_FULL_DISK_MARKS = ("os error 28)", "os error 122)")
"""ENOSPC and EDQUOT as the back end prints them; it passes on no number."""


class ObjectStore:
    """Implements `store.base.Store` by URL."""

    def __init__(self, url: str) -> None:
        """
        Args:
            url: a folder (`/path`, `path` or `file:///path`; made if absent), `memory://` (private to this object), or
                `s3://bucket/prefix`, `gs://...`, `az://...` with credentials from the environment.

        Raises:
            UserError: the URL is of another kind, or the folder cannot be made.
        """
        self.url = url
        self._folder: Path | None = None
        parts = urlsplit(url)
        try:
            if parts.scheme == "" or (parts.scheme == "file" and not parts.netloc):
                self._folder = Path(unquote(parts.path) if parts.scheme else url).absolute()
                self._store: Any = LocalStore(self._folder, mkdir=True)
            elif parts.scheme == "memory":
                self._store = MemoryStore()
            elif parts.scheme in CLOUD_SCHEMES:
                self._store = from_url(url)
            else:
                raise UserError(f"store {url!r}: use a folder, memory://, or one of {', '.join(CLOUD_SCHEMES)}://")
        except (BaseError, OSError) as error:
            raise UserError(f"store {url!r} cannot be opened: {_first_line(error)}") from error

    def put(self, key: str, data: bytes | bytearray) -> None:
        check_key(key)
        try:
            self._call(lambda: obstore.put(self._store, key, data, mode="create", use_multipart=False))
        except AlreadyExistsError:
            self._check_same(key, data)
        if self._folder is not None:
            _sync(self._folder / key, self._folder)

    def get(self, key: str, *, max_bytes: int) -> bytes:
        check_key(key)
        try:
            found = self._call(lambda: obstore.get(self._store, key))
            num_bytes = found.meta["size"]
            if num_bytes > max_bytes:
                raise PeerFault(
                    RejectReason.FILE_TOO_LARGE, f"{key} has {num_bytes} bytes, at most {max_bytes} allowed"
                )
            return self._call(lambda: bytes(found.bytes()))
        except FileNotFoundError:
            raise KeyError(key) from None

    def size(self, key: str) -> int | None:
        check_key(key)
        try:
            return int(self._call(lambda: obstore.head(self._store, key))["size"])
        except FileNotFoundError:
            return None

    def local_path(self, key: str) -> Path | None:
        return None if self._folder is None else self._folder / check_key(key)

    def keys(self, prefix: str) -> list[str]:
        """Keys under the folder-like `prefix` (with or without a closing slash; "" = all), sorted."""
        folder = check_key(prefix.removesuffix("/")) if prefix else None
        pages = self._call(lambda: list(obstore.list(self._store, folder)))
        return sorted(entry["path"] for page in pages for entry in page)

    def delete(self, key: str) -> None:
        check_key(key)
        try:
            self._call(lambda: obstore.delete(self._store, key))
        except FileNotFoundError:
            return

    def remove_unfinished(self) -> int:
        """Delete what a crash left of objects that were being written to a local folder; how many.

        For the only writer, before it writes.
        """
        found = (
            [] if self._folder is None else [path for path in self._folder.rglob("*#*") if _STAGED.fullmatch(path.name)]
        )
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)

    def _check_same(self, key: str, data: bytes | bytearray) -> None:
        try:
            is_same = self.size(key) == len(data) and self.get(key, max_bytes=len(data)) == data
        except KeyError:
            raise Transient(f"{key} in {self.url} was deleted while it was written") from None
        if not is_same:
            raise OurFault(f"{key} in {self.url} already holds other bytes: keys are immutable")

    def _call(self, operation: Callable[[], Result]) -> Result:
        """Run one call of the back end; absence and conflict pass through, every other failure gets its blame."""
        try:
            return operation()
        except AlreadyExistsError:
            raise
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise OurFault(f"store {self.url} refuses access: {_first_line(error)}") from error
        except BaseError as error:
            text = _first_line(error)
            if any(mark in text for mark in _FULL_DISK_MARKS):
                raise OurFault(f"the disk of {self.url} is full: free some space and start again") from error
            if self._folder is not None:
                raise OurFault(f"store {self.url}: {text}") from error
            raise Transient(f"store {self.url}: {text}") from error


def _sync(path: Path, root: Path) -> None:
    """Force a file and the folders that name it, up to `root`, to disk."""
    for item in (path, *path.parents):
        try:
            handle = os.open(item, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise OurFault(f"{item} was written but not synced to disk: {error.strerror}") from error
        if item == root:
            return


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
