"""The files of a package as one zip, and back.

The same files give the same bytes. Unpacking believes nothing but the manifest: an archive holds exactly the manifest's
paths, each a plain file that is read no further than its declared size and must have its hash. Nothing is written here.
"""

import io
import stat
import zipfile
import zlib
from collections.abc import Mapping

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD, sha256_hex
from farflung.wire.package import MAX_FILES, MAX_PACKAGE_BYTES, PackageManifest

MAX_ARCHIVE_BYTES = MAX_PACKAGE_BYTES + (1 << 20)
"""Packed; files that do not compress, and the zip's own tables."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_MAX_DIRECTORY_BYTES = 1 << 20
_MODE = (stat.S_IFREG | 0o644) << 16


def pack(files: Mapping[str, bytes]) -> bytes:
    """The archive of files by path."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _LONG_AGO)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, _MODE, 3
            archive.writestr(entry, files[path])
    return target.getvalue()


def unpack(data: bytes, manifest: PackageManifest) -> dict[str, bytes]:
    """The files by path.

    Raises:
        PeerFault: the archive is not that of the manifest.
    """
    if len(data) > MAX_ARCHIVE_BYTES:
        raise PeerFault(MALFORMED_RECORD, f"an archive of {len(data)} bytes: at most {MAX_ARCHIVE_BYTES}")
    _check_directory(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _read(archive, manifest)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise PeerFault(MALFORMED_RECORD, f"an archive that cannot be read: {error}") from error


def _check_directory(data: bytes) -> None:
    """Before the library builds an object for each of what may be millions of entries."""
    end = data.rfind(b"PK\x05\x06", max(0, len(data) - (1 << 16) - 22))
    count = int.from_bytes(data[end + 10 : end + 12], "little")
    num_bytes = int.from_bytes(data[end + 12 : end + 16], "little")
    if end < 0 or count > MAX_FILES or num_bytes > _MAX_DIRECTORY_BYTES:
        raise PeerFault(MALFORMED_RECORD, f"an archive of {count} files, {num_bytes} bytes of names: too many, or none")


def _read(archive: zipfile.ZipFile, manifest: PackageManifest) -> dict[str, bytes]:
    entries = archive.infolist()
    paths = [entry.filename for entry in entries]
    expected = [file.path for file in manifest.files]
    if sorted(paths) != expected:
        odd = next(iter(sorted(set(paths) ^ set(expected))), "a path twice")
        raise PeerFault(MALFORMED_RECORD, f"an archive whose files are not the manifest's: {odd[:200]!r}")
    by_path = dict(zip(paths, entries, strict=True))
    files: dict[str, bytes] = {}
    for file in manifest.files:
        entry = by_path[file.path]
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or entry.is_dir() or entry.file_size != file.num_bytes:
            raise PeerFault(
                MALFORMED_RECORD, f"{file.path} is not the plain file of {file.num_bytes} bytes that it should be"
            )
        with archive.open(entry) as source:
            content = source.read(file.num_bytes + 1)
        if len(content) != file.num_bytes or sha256_hex(content) != file.sha256:
            raise PeerFault(MALFORMED_RECORD, f"{file.path} has another hash than the manifest says")
        files[file.path] = content
    return files
