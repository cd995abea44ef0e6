"""What a package of environments is: its files by hash, and what its author says of it.

The digest of the manifest names the package: whoever agrees to a digest agrees to every byte of every file. A path is a
few plain names under one folder and ends in a kind of file that is text or data, so that nothing in a package is loaded
by an interpreter unasked (`.pth`), compiled, or executable. This module reads no files.
"""

import re
from typing import ClassVar, Literal

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_digests, require_names

Verifier = Literal["function", "rules", "program", "judge"]
"""Who says what a completion is worth: the package's own functions; named graders that keep to rules, that run
programs, that ask a model. Of several, the last in this order."""
SandboxNeed = Literal["none", "code"]
"""`code`: programs that a model wrote are run, which needs the sandbox for programs."""

MAX_FILES = 512
MAX_FILE_BYTES = 32 << 20
MAX_PACKAGE_BYTES = 64 << 20
"""Of all files together, unpacked."""
MAX_ENVIRONMENTS = 32
MAX_TEXT_BYTES = 2000

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_MAX_PARTS = 8
_SUFFIXES = (".py", ".pyi", ".md", ".txt", ".json", ".jsonl", ".csv", ".tsv", ".toml", ".parquet", ".gz", ".typed")
_BARE = re.compile(r"(LICEN[CS]E|NOTICE|COPYING|AUTHORS)([.-][A-Za-z0-9-]+)?", re.ASCII)
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_VERSION = re.compile(r"(0|[1-9][0-9]{0,5})(\.(0|[1-9][0-9]{0,5})){1,3}", re.ASCII)
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


class PackagedFile(Record, frozen=True, kw_only=True):
    """One file under the package's folder."""

    path: str
    num_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        require_path(self.path)
        require_counts(num_bytes=self.num_bytes)
        require_digests(sha256=self.sha256)
        if self.num_bytes > MAX_FILE_BYTES:
            raise ValueError(f"{self.path} has {self.num_bytes} bytes: at most {MAX_FILE_BYTES}")


class PackagedEnvironment(Record, frozen=True, kw_only=True):
    """One entry point."""

    name: str
    """What pools call it."""
    reference: str
    """`module:object` of a factory (`envs.base.EnvironmentFactory`)."""

    def __post_init__(self) -> None:
        require_package_name(self.name)
        if not _REFERENCE.fullmatch(self.reference) or len(self.reference) > 200:
            raise ValueError(f"entry point {self.reference[:80]!r}: it must be module:object")


class PackageManifest(Record, frozen=True, kw_only=True):
    """A package of one version. Its digest covers every file and everything said here."""

    DOMAIN: ClassVar[str] = "farflung/environment-package/1"

    name: str
    version: str
    summary: str
    licence: str
    """As the author writes it, for example an SPDX expression."""
    verifier: Verifier
    sandbox: SandboxNeed
    is_reproducible: bool
    """Tasks and grades are the same on every machine and every time."""
    environments: tuple[PackagedEnvironment, ...]
    requires: tuple[str, ...] = ()
    """Distributions that must be installed beside farflung; never fetched by us."""
    files: tuple[PackagedFile, ...]
    """Sorted by path."""

    def __post_init__(self) -> None:
        require_package_name(self.name)
        require_version(self.version)
        require_names(licence=self.licence)
        for text in (self.summary, *self.requires):
            if len(text.encode()) > MAX_TEXT_BYTES or not text.isprintable():
                raise ValueError(f"{text[:40]!r}: at most {MAX_TEXT_BYTES} printable bytes")
        self._check_environments()
        self._check_files()
        if len(self.requires) > MAX_ENVIRONMENTS:
            raise ValueError(f"{len(self.requires)} requirements: at most {MAX_ENVIRONMENTS}")

    @property
    def num_bytes(self) -> int:
        """Of all files."""
        return sum(file.num_bytes for file in self.files)

    def _check_environments(self) -> None:
        names = [environment.name for environment in self.environments]
        if not 1 <= len(names) <= MAX_ENVIRONMENTS or len(set(names)) < len(names):
            raise ValueError(f"environments {names[:8]}: from 1 to {MAX_ENVIRONMENTS}, each name once")

    def _check_files(self) -> None:
        paths = [file.path for file in self.files]
        if not 1 <= len(paths) <= MAX_FILES or paths != sorted(paths):
            raise ValueError(f"{len(paths)} files: from 1 to {MAX_FILES}, sorted by path")
        folded = {path.casefold() for path in paths}
        if len(folded) < len(paths):
            raise ValueError("two files have the same path but for upper and lower case")
        folders = {path.rpartition("/")[0] for path in folded}
        above = {"/".join(parts[:end]) for parts in (folder.split("/") for folder in folders) for end in range(1, 9)}
        if folded & above:
            raise ValueError(f"{min(folded & above)} is a file and a folder")
        if self.num_bytes > MAX_PACKAGE_BYTES:
            raise ValueError(f"{self.num_bytes} bytes of files: at most {MAX_PACKAGE_BYTES}")


def require_path(path: str) -> None:
    """Raises `ValueError` unless it is a few plain names, without `..`, and of a kind that packages may hold."""
    parts = path.split("/")
    if len(parts) > _MAX_PARTS or not all(_PART.fullmatch(part) for part in parts):
        raise ValueError(
            f"path {path[:120]!r}: at most {_MAX_PARTS} names of letters, digits, _, - and . with / between"
        )
    if not path.endswith(_SUFFIXES) and not _BARE.fullmatch(parts[-1]):
        raise ValueError(f"path {path[:120]!r}: a package holds {' '.join(_SUFFIXES)} and LICENSE files, nothing else")


def require_package_name(name: str) -> None:
    """Raises `ValueError` unless it is lower-case words of letters and digits with single hyphens between."""
    if len(name) > 64 or not _NAME.fullmatch(name):
        raise ValueError(f"name {name[:80]!r}: lower-case letters and digits with single - between, at most 64")


def require_version(version: str) -> None:
    """Raises `ValueError` unless it is two to four whole numbers with dots between: one spelling, one order."""
    if not _VERSION.fullmatch(version):
        raise ValueError(f"version {version[:40]!r}: two to four whole numbers with dots between, such as 0.1.0")


def version_order(version: str) -> tuple[int, ...]:
    """To sort versions by."""
    return tuple(int(part) for part in version.split("."))
