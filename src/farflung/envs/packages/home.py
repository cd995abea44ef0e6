"""What is installed on this machine: a folder of unpacked packages, and a lock that says which.

    lock.json                          name, version, digest and index of each; digests that were seen before
    packages/<digest>/manifest.json
    packages/<digest>/files/...        exactly the manifest's files, hashed again whenever they are loaded

A version that once had a digest never gets another here, whatever an index says later. The folder is
`$FARFLUNG_ENVIRONMENTS`, else `farflung/environments` of the user's data. Nothing here imports a package.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from farflung.envs.packages.names import require_free
from farflung.envs.packages.project import SOURCE, Package
from farflung.errors import OurFault, PeerFault, UserError
from farflung.wire.canonical import sha256_hex
from farflung.wire.package import PackageManifest

VARIABLE = "FARFLUNG_ENVIRONMENTS"
_MAX_LOCK_BYTES = 16 << 20
_LOCK, _MANIFEST = "lock.json", "manifest.json"


class Installed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One package of the lock."""

    name: str
    version: str
    digest: str
    index: str
    environments: Mapping[str, str]
    """Name -> `module:object`."""
    is_agreed: bool = False
    """The operator agreed to this digest: its code runs as he does, without walls."""


class Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    packages: tuple[Installed, ...] = ()
    seen: Mapping[str, str] = {}
    """`name version` -> digest of every version that was ever installed here."""

    def package(self, name: str) -> Installed | None:
        return next((each for each in self.packages if each.name == name), None)


def default_folder() -> Path | None:
    """Where packages are installed; None for a user without a home."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME")
    try:
        return (Path(data) if data else Path.home() / ".local" / "share") / "farflung" / "environments"
    except RuntimeError:
        return None


class Home:
    """Installed packages under a folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lock(self) -> Lock:
        """Raises `UserError` for a damaged one."""
        path = self.folder / _LOCK
        try:
            if path.stat().st_size > _MAX_LOCK_BYTES:
                raise UserError(f"{path} is larger than {_MAX_LOCK_BYTES} bytes: remove it and install again")
            return msgspec.json.decode(path.read_bytes(), type=Lock)
        except FileNotFoundError:
            return Lock()
        except (msgspec.DecodeError, OSError) as error:
            raise UserError(f"{path} cannot be read ({error}): remove it and install again") from error

    def find(self, environment: str) -> Installed | None:
        """The package that has an environment of this name."""
        return next((each for each in self.lock().packages if environment in each.environments), None)

    def install(self, package: Package, index: str, taken: Callable[[], list[str]], agreed: str = "") -> Installed:
        """Unpack a package whose hashes were checked, and put it into the lock in place of another version.

        Args:
            taken: names of environments that are not from packages of this folder.
            agreed: digest whose code may run without walls; "" = behind them.

        Raises:
            UserError: a name is taken, the version had another digest before, or `agreed` is another digest.
            OurFault: the files cannot be written.
        """
        manifest = package.manifest
        entry = Installed(
            name=manifest.name,
            version=manifest.version,
            digest=manifest.digest(),
            index=index,
            environments={each.name: each.reference for each in manifest.environments},
            is_agreed=bool(agreed),
        )
        if agreed and agreed != entry.digest:
            raise UserError(
                f"you agreed to {agreed}, and {entry.name} {entry.version} is {entry.digest}: read it first"
            )
        with self._changing():
            lock = self.lock()
            self._check(entry, lock, taken())
            try:
                self._unpack(package, entry.digest)
                kept = tuple(each for each in lock.packages if each.name != entry.name)
                seen = {**lock.seen, f"{entry.name} {entry.version}": entry.digest}
                packages = tuple(sorted((*kept, entry), key=lambda each: each.name))
                self._write(replace(lock, packages=packages, seen=seen))
            except OSError as error:
                raise OurFault(f"{entry.name} could not be installed in {self.folder}: {error}") from error
        return entry

    def remove(self, name: str) -> None:
        """Raises `UserError` if it is not installed."""
        with self._changing():
            lock = self.lock()
            entry = lock.package(name)
            if entry is None:
                known = ", ".join(each.name for each in lock.packages) or "nothing"
                raise UserError(f"{name} is not installed in {self.folder}, which has {known}")
            self._write(replace(lock, packages=tuple(each for each in lock.packages if each != entry)))
            shutil.rmtree(self._place(entry.digest), ignore_errors=True)

    def source_of(self, entry: Installed) -> Path:
        """The folder that its code is imported from, after every file was hashed again.

        Raises:
            UserError: a file is not what was installed.
        """
        self.manifest_of(entry)
        return self.files_of(entry) / SOURCE

    def files_of(self, entry: Installed) -> Path:
        """Its unpacked files."""
        return self._place(entry.digest) / "files"

    def manifest_of(self, entry: Installed) -> PackageManifest:
        """The manifest, after every file was hashed again. Raises `UserError`."""
        try:
            data = (self._place(entry.digest) / _MANIFEST).read_bytes()
            manifest = PackageManifest.from_bytes(data)
            problem = "" if manifest.digest() == entry.digest else "its manifest has changed"
            problem = problem or _difference(self.files_of(entry), manifest)
        except (OSError, PeerFault) as error:
            problem = str(error)
        if problem:
            raise UserError(
                f"{entry.name} {entry.version} is not what was installed ({problem}): `farflung env install "
                f"{entry.name} --index {entry.index}` installs it again"
            )
        return manifest

    def _check(self, entry: Installed, lock: Lock, taken: list[str]) -> None:
        before = lock.seen.get(f"{entry.name} {entry.version}")
        if before not in (None, entry.digest):
            raise UserError(
                f"{entry.name} {entry.version} was {before} when it was installed first, and {entry.index} now says "
                f"{entry.digest}: a version never changes, so do not trust this index"
            )
        others = [each for each in lock.packages if each.name != entry.name]
        theirs = [name for each in others for name in (each.name, *each.environments)]
        require_free([entry.name, *entry.environments], [*taken, *theirs])
        installed = lock.package(entry.name)
        if installed is not None and installed.index != entry.index:
            raise UserError(
                f"{entry.name} came from {installed.index}, and this is {entry.index}: `farflung env remove "
                f"{entry.name}` first, if you mean it"
            )

    def _unpack(self, package: Package, digest: str) -> None:
        place = self._place(digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=place.parent, prefix="draft-"))
        try:
            (draft / _MANIFEST).write_bytes(package.manifest.to_bytes())
            (draft / "files" / SOURCE).mkdir(parents=True)
            for path, content in package.files.items():
                target = draft / "files" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            for folder, _, _ in os.walk(draft):
                os.chmod(folder, 0o755)  # noqa: S103 - published files; the child is another user
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def _place(self, digest: str) -> Path:
        return self.folder / "packages" / digest

    def _write(self, lock: Lock) -> None:
        draft = self.folder / f"{_LOCK}.draft"
        with draft.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(lock)))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / _LOCK)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One writer at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "writing").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _difference(folder: Path, manifest: PackageManifest) -> str:
    """What is not as the manifest says, in words; links count as changes, since they lead elsewhere."""
    found = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    expected = {file.path: file for file in manifest.files}
    if odd := sorted(set(found) ^ set(expected)):
        return f"{odd[0]} is {'missing' if odd[0] in expected else 'not of it'}"
    for name, file in expected.items():
        path = found[name]
        if path.is_symlink() or path.stat().st_size != file.num_bytes or sha256_hex(path.read_bytes()) != file.sha256:
            return f"{name} has changed"
    return ""
