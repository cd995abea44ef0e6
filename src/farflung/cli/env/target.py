"""What a word on the command line means: an environment by name, or a project folder, loaded the way others will.

A project folder is packed as it would be published, and runs in a child behind walls; with `--trust`, in this process.
"""

import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from farflung.envs import reasoning_gym
from farflung.envs.base import Environment
from farflung.envs.checks.fingerprint import HASH_SEEDS, Fingerprint, Subject, fingerprint, fingerprints
from farflung.envs.guest.environment import load_guest
from farflung.envs.guest.process import GuestSource, NoWalls
from farflung.envs.packages.agreed import agreed_factory
from farflung.envs.packages.project import SOURCE, Package, read_project
from farflung.envs.registry import home_folder, load_environment
from farflung.errors import FarflungError, UserError
from farflung.wire.package import PackageManifest
from farflung.wire.pool import EnvArg

FINGERPRINT_S = 120.0
"""For a process to load an environment and grade a few texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """An environment, and how it came to be here."""

    environment: Environment
    origin: str
    """For people: `built in`, `in a child behind walls`, ..."""
    subject: Subject
    guest: GuestSource | None = None
    """What a child is started from, if it runs in one."""
    manifest: PackageManifest | None = None
    readme: str = ""

    def pair(self) -> tuple[Fingerprint, Fingerprint]:
        """Of two processes with different hash seeds."""
        if self.guest is not None:
            one, other = (_of_guest(self.guest, hash_seed) for hash_seed in HASH_SEEDS)
        else:
            one, other = (fingerprints([self.subject], hash_seed, FINGERPRINT_S)[0] for hash_seed in HASH_SEEDS)
        return one, other


def is_folder(word: str) -> bool:
    """Whether a word means a project folder: a name never does, whatever lies in the folder that one stands in."""
    return word.startswith(".") or ("/" in word and not word.startswith(reasoning_gym.PREFIX))


@contextmanager
def opened(word: str, *, seed: int, args: Mapping[str, EnvArg], entry: str | None, trust: bool) -> Iterator[Target]:
    """The environment, for as long as the block runs. Raises `UserError`, `OurFault`."""
    if not is_folder(word):
        if entry is not None or trust:
            raise UserError(f"--entry and --trust are for project folders, and {word} is a name")
        target = _by_name(word, seed, args)
        try:
            yield target
        finally:
            _close(target.environment)
        return
    with opened_package(read_project(Path(word)), seed=seed, args=args, entry=entry, trust=trust) as target:
        yield target


@contextmanager
def opened_package(
    package: Package, *, seed: int, args: Mapping[str, EnvArg], entry: str | None, trust: bool
) -> Iterator[Target]:
    """An environment of a package, from a folder that holds its files and nothing else."""
    reference = _reference(package.manifest, entry)
    with tempfile.TemporaryDirectory(prefix="farflung-env-") as folder:
        _write(package, Path(folder))
        source = GuestSource(folder=Path(folder) / SOURCE, reference=reference, seed=seed, args=args)
        target = _of_package(package, source, trust=trust)
        try:
            yield target
        finally:
            _close(target.environment)


def _by_name(name: str, seed: int, args: Mapping[str, EnvArg]) -> Target:
    try:
        environment = load_environment(name, seed, args)
    except UserError as error:
        if name.isprintable() and (Path(name) / "pyproject.toml").is_file():
            raise UserError(f"{error}; the folder of that name is ./{name}") from error
        raise
    subject = Subject(name=name, seed=seed, args=args)
    home = home_folder()
    package = home.find(name) if home else None
    if home is None or package is None:
        return Target(environment=environment, origin="in this process", subject=subject)
    guest = GuestSource(
        folder=home.files_of(package) / SOURCE, reference=package.environments[name], seed=seed, args=args
    )
    readme = home.files_of(package) / "README.md"
    return Target(
        environment=environment,
        origin="in this process, as agreed" if package.is_agreed else "in a child behind walls",
        subject=subject,
        guest=None if package.is_agreed else guest,
        manifest=home.manifest_of(package),
        readme=readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else "",
    )


def _of_package(package: Package, source: GuestSource, *, trust: bool) -> Target:
    subject = Subject(name=source.reference, seed=source.seed, args=source.args, folder=str(source.folder))
    environment: Environment
    if trust:
        environment = agreed_factory(source.folder, source.reference)(source.seed, source.args)
    else:
        try:
            environment = load_guest(source)
        except NoWalls as error:
            raise UserError(f"{error}; or use --trust for code that you wrote yourself") from error
    return Target(
        environment=environment,
        origin="in this process, as agreed" if trust else "in a child behind walls",
        subject=subject,
        guest=None if trust else source,
        manifest=package.manifest,
        readme=package.files.get("README.md", b"").decode("utf-8", "replace"),
    )


def _reference(manifest: PackageManifest, entry: str | None) -> str:
    for each in manifest.environments:
        if entry in (None, each.name):
            return each.reference
    known = ", ".join(each.name for each in manifest.environments)
    raise UserError(f"{manifest.name} has no environment {entry}: it has {known}")


def _write(package: Package, folder: Path) -> None:
    folder.chmod(0o755)  # the child is another user
    (folder / SOURCE).mkdir()
    for path, content in package.files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _of_guest(source: GuestSource, hash_seed: int) -> Fingerprint:
    other = GuestSource(
        folder=source.folder, reference=source.reference, seed=source.seed, args=source.args, hash_seed=hash_seed
    )
    try:
        environment = load_guest(other)
    except FarflungError as error:
        return Fingerprint(error=str(error))
    try:
        return fingerprint(environment)
    except (FarflungError, ValueError, IndexError) as error:
        return Fingerprint(error=str(error))
    finally:
        environment.close()


def _close(environment: Environment) -> None:
    close = getattr(environment, "close", None)
    if isinstance(close, weakref.finalize):
        close()
